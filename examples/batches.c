/* SPDX-License-Identifier: Apache-2.0 */
/* examples/batches.c - one epoch of shuffled token batches. Usage: batches FILE T B [DEVICE] */
#include <stdio.h>
#include <stdlib.h>

#include <headrace/headrace.h>

int main(int argc, char **argv)
{
	struct hr_dataset_options data = {.format = "tokens"};
	struct hr_loader_options opts = {.out_dtype = HR_DTYPE_I64, .seed = 1, .epochs = 1};
	struct hr_device *dev = NULL;
	struct hr_dataset *ds = NULL;
	struct hr_loader *loader = NULL;
	const struct hr_batch *batch;
	int err = -1;

	if (argc < 4) {
		fprintf(stderr, "usage: batches FILE T B [DEVICE]\n");
		return 2;
	}
	data.seq_len = (uint32_t)strtoul(argv[2], NULL, 10);
	opts.batch_size = (uint32_t)strtoul(argv[3], NULL, 10);
	if (!hr_device_open(argc > 4 ? argv[4] : "host", &dev) &&
	    !hr_dataset_open((const char *const *)&argv[1], 1, &data, &ds) &&
	    !hr_loader_open(ds, dev, &opts, &loader)) {
		while (!(err = hr_loader_next(loader, &batch))) {
			/* A training step goes here: the tensors are device memory. */
			printf("step %llu: sample %llu first, input_ids at %p\n",
			       (unsigned long long)batch->step, (unsigned long long)batch->ids[0],
			       batch->tensors[1].data);
			hr_loader_release(loader, batch, NULL);
		}
	}
	if (err != -HR_E_END)
		fprintf(stderr, "batches: %s\n", hr_error_detail());
	hr_loader_close(loader);
	hr_dataset_close(ds);
	hr_device_close(dev);
	return err != -HR_E_END;
}
