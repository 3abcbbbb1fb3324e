/* SPDX-License-Identifier: Apache-2.0 */
/* examples/hello.c - two pieces of a file, gathered into device memory. Usage: hello FILE [DEVICE] */
#include <stdio.h>

#include <headrace/headrace.h>

int main(int argc, char **argv)
{
	const struct hr_piece pieces[] = {
		{.file_offset = 3, .len = 5, .buffer_offset = 0},
		{.file_offset = 64, .len = 8, .buffer_offset = 5},
	};
	struct hr_device *dev = NULL;
	struct hr_file *file = NULL;
	struct hr_buffer *buf = NULL;
	struct hr_engine *engine = NULL;
	char text[13] = "";
	int64_t n = -1;

	if (argc < 2)
		fprintf(stderr, "usage: hello FILE [DEVICE]\n");
	else if (hr_device_open(argc > 2 ? argv[2] : "host", &dev) ||
		 hr_file_open(argv[1], HR_FILE_READ, &file) || hr_buffer_alloc(dev, 4096, &buf) ||
		 hr_engine_open(dev, NULL, &engine))
		fprintf(stderr, "hello: %s\n", hr_error_detail());
	else if ((n = hr_gather(engine, file, pieces, 2, buf, HR_DTYPE_BYTES, HR_DTYPE_BYTES)) <
			 0 ||
		 hr_buffer_copy_out(buf, 0, text, 13))
		fprintf(stderr, "hello: %s\n", hr_error_detail());
	else
		printf("%lld bytes: %.13s\n", (long long)n, text);
	hr_engine_close(engine);
	hr_buffer_free(buf);
	hr_file_close(file);
	hr_device_close(dev);
	return n < 0;
}
