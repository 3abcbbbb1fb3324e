/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz/replay.c - runs a fuzz target over every file of the folders named, each also cut short at
 * several lengths, so that a corpus is a test without libFuzzer.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy of exactly @size bytes: the address sanitizer sees the first byte behind it. */
static void run_input(const uint8_t *bytes, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	memcpy(copy, bytes, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static int replay_file(const char *path)
{
	static uint8_t bytes[INPUT_MAX];
	FILE *file = fopen(path, "rb");
	size_t size;

	if (!file) {
		perror(path);
		return -1;
	}
	size = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	for (size_t cut = 0; cut < size; cut += cut < 64 ? 1 : 61)
		run_input(bytes, cut);
	run_input(bytes, size);
	return 0;
}

static int replay_folder(const char *folder)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;
	char path[4096];
	int count = 0;

	if (!dir) {
		perror(folder);
		return -1;
	}
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		if (replay_file(path) < 0) {
			closedir(dir);
			return -1;
		}
		count++;
	}
	closedir(dir);
	return count;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		int count = replay_folder(argv[i]);

		if (count <= 0) {
			fprintf(stderr, "%s: no input was run\n", argv[i]);
			return 1;
		}
		printf("%s: %d inputs\n", argv[i], count);
	}
	return 0;
}
