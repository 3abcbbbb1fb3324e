/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes the files of one file system through the public interface and compares every byte
 * with read(2), guard bytes around the destination included, for fsbytes.
 *
 * Usage: fsbytes_probe make DIR          create the files that check reads
 *        fsbytes_probe appends DIR      0 when the kernel itself keeps appended bytes, 1 when not
 *        fsbytes_probe check DEVICE PATH [write] [slow]
 * PATH is a folder with such files, or one file or block device. "write" adds what needs a writable
 * folder: a file whose pages are dirty, and writes with read-back. "slow" keeps to a few reads.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <headrace/headrace.h>

#define GUARD 0xa5
#define PLAIN_LEN ((3u << 20) + 777u)
#define ROOM (8u << 20)
#define FAR (5ull << 30)
#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static struct {
	const char *mode, *path; /* for messages */
	struct hr_device *dev;
	struct hr_engine *engine;
	struct hr_buffer *buf;
	struct hr_file *file;
	int fd;
	uint64_t size;
	uint8_t *want, *got, *part; /* ROOM bytes each */
	uint64_t seed;
	uint64_t reads, gathers, writes, bytes, files;
	uint64_t by_path[HR_PATH_MAX];
	bool slow;
	size_t step; /* of the cross' destinations */
} p;

static void die(const char *what, int64_t code)
{
	fprintf(stderr, "%s, %s: %s: %s: %s\n", p.path, p.mode, what, hr_error_name((int)code),
		code < 0 ? hr_error_detail() : "");
	exit(1);
}

static void must(int64_t ret, const char *what)
{
	if (ret < 0)
		die(what, ret);
}

static void must_sys(int64_t ret, const char *what)
{
	if (ret < 0)
		die(what, -errno);
}

static uint64_t next_random(void)
{
	uint64_t z = (p.seed += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static void fill_random(uint8_t *mem, size_t len)
{
	for (size_t i = 0; i < len; i++)
		mem[i] = (uint8_t)(next_random() >> 32);
}

/* -- the files ------------------------------------------------------------------------------------ */

static int create(const char *dir, const char *name)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	must_sys(fd, name);
	return fd;
}

static void put(int fd, uint64_t off, size_t len)
{
	fill_random(p.part, len);
	must_sys(pwrite(fd, p.part, len, (off_t)off) == (ssize_t)len ? 0 : -1, "write");
}

static void done(int fd)
{
	must_sys(fsync(fd), "fsync");
	close(fd);
}

static void make_clone(const char *dir, int from)
{
	int fd = create(dir, "clone");
	char path[4096];

	if (ioctl(fd, FICLONE, from) == 0) {
		put(fd, 70001, 5000); /* a part of it is its own */
		done(fd);
		return;
	}
	snprintf(path, sizeof(path), "%s/clone", dir);
	unlink(path);
	close(fd);
}

static void make(const char *dir)
{
	int fd = create(dir, "plain"), holes = create(dir, "holes"), far = create(dir, "far"),
	    small;

	put(fd, 0, PLAIN_LEN);
	must_sys(fsync(fd), "fsync");
	make_clone(dir, fd);
	done(fd);

	put(holes, 5000, 100);
	put(holes, 300000, 131072);
	put(holes, 1048577, 1);
	must_sys(ftruncate(holes, 2000001), "ftruncate");
	done(holes);

	fd = create(dir, "unwritten");
	if (fallocate(fd, 0, 0, 1500000) == 0)
		put(fd, 409600, 10000);
	else
		put(fd, 0, 1500000);
	done(fd);

	small = create(dir, "small");
	put(small, 0, 40);
	done(small);

	fd = create(dir, "text"); /* what a file system may compress */
	memset(p.part, 'a', 1500001);
	must_sys(pwrite(fd, p.part, 1500001, 0), "write");
	done(fd);

	/* data on both sides of 4 GiB */
	if (ftruncate(far, FAR + 99) == 0) {
		put(far, 0, 4096);
		put(far, (4ull << 30) - 70000, 140000);
		put(far, FAR, 99);
	}
	done(far);
}

/* Does the kernel itself keep what is appended to a file that began with one byte? */
static bool appends(const char *dir)
{
	int fd = create(dir, "lost");
	char path[4096], last = 0;

	put(fd, 0, 1);
	put(fd, 0, 8192);
	must_sys(pwrite(fd, "x", 1, 8192), "write");
	must_sys(pread(fd, p.part, 20000, 0), "read");
	last = (char)p.part[8192];
	close(fd);
	snprintf(path, sizeof(path), "%s/lost", dir);
	unlink(path);
	return last == 'x';
}

/* -- comparison ----------------------------------------------------------------------------------- */

/* What read(2) says. Return: bytes, less than @len at the end of file. */
static uint64_t plain_read(uint8_t *dst, uint64_t off, uint64_t len)
{
	uint64_t n = 0;

	while (n < len) {
		ssize_t ret = pread(p.fd, dst + n, len - n, (off_t)(off + n));

		if (ret < 0 && errno == EINTR)
			continue;
		must_sys(ret, "pread");
		if (ret == 0)
			break;
		n += (uint64_t)ret;
	}
	return n;
}

static void poison(uint64_t room)
{
	memset(p.want, GUARD, room);
	must(hr_buffer_copy_in(p.buf, 0, p.want, room), "copy in");
}

static void compare(uint64_t room, const char *what, uint64_t off, uint64_t len, uint64_t dst)
{
	must(hr_buffer_copy_out(p.buf, 0, p.got, room), "copy out");
	if (!memcmp(p.got, p.want, room))
		return;
	for (uint64_t i = 0; i < room; i++) {
		if (p.got[i] == p.want[i])
			continue;
		fprintf(stderr,
			"%s, %s: %s of %" PRIu64 "+%" PRIu64 " to %" PRIu64 ": byte %" PRIu64
			" of the buffer is %02x, not %02x\n",
			p.path, p.mode, what, off, len, dst, i, p.got[i], p.want[i]);
		exit(1);
	}
}

static void check_read(uint64_t off, uint64_t len, uint64_t dst)
{
	uint64_t room = dst + len + 4608, n;
	int64_t ret;

	poison(room);
	ret = hr_read(p.engine, p.file, off, len, p.buf, dst);
	must(ret, "hr_read");
	n = plain_read(p.want + dst, off, len);
	if ((uint64_t)ret != n) {
		fprintf(stderr,
			"%s, %s: read of %" PRIu64 "+%" PRIu64 " gave %" PRId64 ", read(2) %" PRIu64
			"\n",
			p.path, p.mode, off, len, ret, n);
		exit(1);
	}
	/* what lies behind the end of file inside the piece is undefined */
	if (n < len) {
		must(hr_buffer_copy_out(p.buf, dst + n, p.part, len - n), "copy out");
		memcpy(p.want + dst + n, p.part, len - n);
	}
	compare(room, "read", off, len, dst);
	p.reads++;
	p.bytes += n;
}

static void cross(void)
{
	static const uint64_t offs[] = {0, 1, 511, 512, 513, 4095, 4096, 4097};
	static const uint64_t lens[] = {0, 1, 511, 512, 4095, 4096, 4097, (1 << 20) + 1};
	static const uint64_t dsts[] = {0, 1, 8, 255, 256};

	for (size_t o = 0; o < LEN(offs); o += p.slow ? 3 : 1)
		for (size_t l = 0; l < LEN(lens); l += p.slow ? 3 : 1)
			for (size_t d = 0; d < LEN(dsts); d += p.slow ? 4 : p.step)
				check_read(offs[o], lens[l], dsts[d]);
}

static void tail(void)
{
	static const uint64_t before[] = {0, 1, 511, 512, 777, 4095, 4096, 5000};

	for (size_t i = 0; i < LEN(before); i += p.slow ? 4 : 1) {
		uint64_t off = before[i] > p.size ? 0 : p.size - before[i];

		check_read(off, 10000, 8 + i);
	}
	check_read(p.size + 4096, 512, 3);
	check_read(1ull << 40, 4096, 0);
}

/* A list of pieces with gaps, at random places; @wide: elements of 2 bytes become 8. */
static void gather(uint32_t n, bool wide)
{
	struct hr_piece *pieces = calloc(n, sizeof(*pieces));
	uint64_t at = 8, bytes = 0;
	int64_t ret;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t len = next_random() % (p.size < 9000 ? p.size + 1 : 9000), out;

		len -= wide ? len % 2 : 0;
		out = wide ? len * 4 : len;
		if (at + out + 4096 > ROOM)
			len = out = 0;
		pieces[i] = (struct hr_piece){next_random() % (p.size - len + 1), len, at};
		/* every eighth goes on where the last one ended */
		if (i % 8 == 7 && pieces[i - 1].file_offset + pieces[i - 1].len + len <= p.size)
			pieces[i].file_offset = pieces[i - 1].file_offset + pieces[i - 1].len;
		at += out + (wide ? next_random() % 5 * 8 : next_random() % 40);
		bytes += len;
	}
	poison(at + 4096);
	ret = hr_gather(p.engine, p.file, pieces, n, p.buf, wide ? HR_DTYPE_U16 : HR_DTYPE_BYTES,
			wide ? HR_DTYPE_I64 : HR_DTYPE_BYTES);
	must(ret, "hr_gather");
	if ((uint64_t)ret != bytes)
		die("hr_gather was short", 0);
	for (uint32_t i = 0; i < n; i++) {
		plain_read(p.part, pieces[i].file_offset, pieces[i].len);
		for (uint64_t k = 0; k < pieces[i].len; k += wide ? 2 : 1) {
			uint8_t *to = p.want + pieces[i].buffer_offset + (wide ? k * 4 : k);

			to[0] = p.part[k];
			if (wide) {
				to[1] = p.part[k + 1];
				memset(to + 2, 0, 6);
			}
		}
	}
	compare(at + 4096, wide ? "converting gather" : "gather", 0, bytes, 0);
	free(pieces);
	p.gathers++;
	p.bytes += bytes;
}

/* One request whose pieces lie on both sides of 4 GiB, one of them across. */
static void gather_far(void)
{
	struct hr_piece pieces[] = {
		{FAR - 1, 100, 7},
		{(4ull << 30) - 65537, 131073, 200},
		{0, 5000, 140000},
		{(2ull << 30) - 1, 2, 150000},
		{(4ull << 30) - 1, 2, 150010},
	};

	poison(160000);
	if (hr_gather(p.engine, p.file, pieces, LEN(pieces), p.buf, 0, 0) !=
	    100 + 131073 + 5000 + 2 + 2)
		die("gather across 4 GiB was short", 0);
	for (size_t i = 0; i < LEN(pieces); i++)
		plain_read(p.want + pieces[i].buffer_offset, pieces[i].file_offset, pieces[i].len);
	compare(160000, "far gather", 0, 0, 0);
	p.gathers++;
}

/* -- one file, one folder ------------------------------------------------------------------------- */

static void open_engine(const char *mode)
{
	struct hr_engine_options o = {
		.staging_bytes = 4 << 20,
		.direct = !strcmp(mode, "direct"),
		.buffered = !strcmp(mode, "buffered"),
	};

	p.mode = mode;
	must(hr_engine_open(p.dev, &o, &p.engine), "hr_engine_open");
}

static void close_engine(void)
{
	struct hr_stats stats;

	hr_engine_stats(p.engine, &stats);
	for (int i = 0; i < HR_PATH_MAX; i++)
		p.by_path[i] += stats.bytes_by_path[i];
	must(hr_engine_close(p.engine), "hr_engine_close");
}

static void open_file(const char *path, uint32_t flags)
{
	struct hr_file_info info;

	p.path = path;
	must(hr_file_open(path, flags, &p.file), "hr_file_open");
	must(hr_file_info(p.file, &info), "hr_file_info");
	p.size = info.size_bytes;
	p.fd = open(path, O_RDONLY | O_CLOEXEC);
	must_sys(p.fd, "open");
}

static void close_file(void)
{
	close(p.fd);
	hr_file_close(p.file);
	p.files++;
}

static void check_open_file(bool all)
{
	if (p.size > FAR) {
		gather_far();
		return;
	}
	if (all)
		cross();
	tail();
	for (int i = 0; i < (p.slow ? 1 : 3); i++) {
		gather(p.slow ? 8 : 200, false);
		gather(p.slow ? 8 : 60, true);
	}
}

static void check_file(const char *path, bool drop)
{
	const char *base = strrchr(path, '/');

	open_file(path, HR_FILE_READ);
	if (drop)
		hr_file_drop_cache(p.file);
	check_open_file(p.size > 1 << 20 && (!base || !strcmp(base, "/plain") || !drop));
	close_file();
}

/* Pages that are only in memory so far: direct reads must see them too. */
static void check_dirty(const char *dir)
{
	char path[4096];
	int fd = create(dir, "dirty");

	put(fd, 0, 1 << 20);
	must_sys(fsync(fd), "fsync");
	snprintf(path, sizeof(path), "%s/dirty", dir);
	open_file(path, HR_FILE_READ);
	hr_file_drop_cache(p.file);
	for (uint64_t i = 0; i < (p.slow ? 4 : 40); i++) {
		uint64_t off = next_random() % (900 << 10);

		put(fd, off, 1 + next_random() % 9000);
		check_read(off & ~4095ull, 20000, i);
		put(fd, p.size, 100); /* grows */
		p.size += 100;
		check_read(p.size - 150, 150, 1);
	}
	gather(p.slow ? 8 : 200, false);
	close(fd);
	close_file();
}

static void write_one(uint64_t off, uint64_t len, uint64_t src)
{
	uint64_t before, room = off + len + 70000, after;
	int64_t ret;

	if (ROOM < room)
		die("the test's memory is too small", 0);
	memset(p.want, 0, room);
	before = plain_read(p.want, 0, room);
	fill_random(p.part, len);
	memcpy(p.want + off, p.part, len);
	must(hr_buffer_copy_in(p.buf, src, p.part, len), "copy in");
	ret = hr_write(p.engine, p.file, off, len, p.buf, src);
	must(ret, "hr_write");
	if ((uint64_t)ret != len)
		die("hr_write was short", 0);
	memset(p.got, 0, room);
	after = plain_read(p.got, 0, room);
	if (after != (before > off + len ? before : off + len))
		die("the length after hr_write is wrong", 0);
	for (uint64_t i = 0; i < room; i++) {
		if (p.got[i] == p.want[i])
			continue;
		fprintf(stderr,
			"%s, %s: after a write of %" PRIu64 "+%" PRIu64 " from %" PRIu64
			" byte %" PRIu64 " is %02x, not %02x; before, the file had %" PRIu64 "\n",
			p.path, p.mode, off, len, src, i, p.got[i], p.want[i], before);
		exit(1);
	}
	p.writes++;
}

static void check_writes(const char *dir)
{
	static const uint64_t offs[] = {0, 1, 511, 4096, 4097, 66000, 2000000};
	static const uint64_t lens[] = {1, 511, 4096, 8193, 500001};
	static const uint64_t srcs[] = {0, 3, 256};
	char path[4096];
	int fd = create(dir, "out");

	close(fd);
	snprintf(path, sizeof(path), "%s/out", dir);
	open_file(path, HR_FILE_READ | HR_FILE_WRITE);
	for (size_t o = 0; o < LEN(offs); o += p.slow ? 3 : 1)
		for (size_t l = 0; l < LEN(lens); l += p.slow ? 2 : 1)
			write_one(offs[o], lens[l], srcs[(o + l) % LEN(srcs)]);
	must(hr_file_sync(p.file), "hr_file_sync");
	must(hr_file_drop_cache(p.file), "hr_file_drop_cache");
	check_read(0, 70000, 1);
	close_file();
}

static void check_folder(const char *dir, bool writable)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char path[4096];

	must_sys(d ? 0 : -1, dir);
	while ((e = readdir(d))) {
		struct stat st;

		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
			check_file(path, true);
	}
	closedir(d);
	if (writable) {
		check_dirty(dir);
		check_writes(dir);
	}
}

static void print_decision(const char *device, const char *path)
{
	struct hr_explanation ex;
	char file[4096];
	struct stat st;

	snprintf(file, sizeof(file), "%s%s", path,
		 stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? "/plain" : "");
	must(hr_file_open(file, HR_FILE_READ, &p.file), "hr_file_open");
	must(hr_explain(p.file, p.dev, 0, 0, &ex), "hr_explain");
	hr_file_close(p.file);
	printf("%s: fs=%s path=%s queue=\"%s\" direct=%d align=%u/%u", device, ex.file.fs_name,
	       hr_path_name(ex.path), ex.queue.name, ex.file.direct, ex.file.offset_align,
	       ex.file.memory_align);
	printf(" files=%" PRIu64 " reads=%" PRIu64 " gathers=%" PRIu64 " writes=%" PRIu64
	       " MiB=%" PRIu64,
	       p.files, p.reads, p.gathers, p.writes, p.bytes >> 20);
	for (int i = 0; i < HR_PATH_MAX; i++)
		if (p.by_path[i])
			printf(" %s_MiB=%" PRIu64, hr_path_name((enum hr_path)i),
			       p.by_path[i] >> 20);
	if (ex.file.direct_reason[0])
		printf(" (%s)", ex.file.direct_reason);
	printf("\n");
}

static void check(const char *device, const char *path, bool writable)
{
	static const char *const modes[] = {"auto", "direct", "buffered"};
	struct stat st;

	must(hr_device_open(device, &p.dev), "hr_device_open");
	must(hr_buffer_alloc(p.dev, ROOM, &p.buf), "hr_buffer_alloc");
	must_sys(stat(path, &st), "stat");
	/* what is particular to a file system is seen on the host; the GPU gets a part of it */
	p.step = strcmp(device, "host") ? 2 : 1;
	for (size_t i = 0; i < LEN(modes) - (p.step - 1); i++) {
		open_engine(modes[i]);
		if (S_ISDIR(st.st_mode))
			check_folder(path, writable);
		else
			check_file(path, false);
		close_engine();
	}
	print_decision(device, path);
	must(hr_buffer_free(p.buf), "hr_buffer_free");
	hr_device_close(p.dev);
}

int main(int argc, char **argv)
{
	bool writable = false;

	p.seed = 1;
	p.mode = p.path = "";
	p.want = malloc(ROOM);
	p.got = malloc(ROOM);
	p.part = malloc(ROOM);
	if (!p.want || !p.got || !p.part || argc < 3)
		return 2;
	for (int i = 4; i < argc; i++) {
		writable |= !strcmp(argv[i], "write");
		p.slow |= !strcmp(argv[i], "slow");
	}
	if (!strcmp(argv[1], "make"))
		make(argv[2]);
	else if (!strcmp(argv[1], "appends") && !appends(argv[2]))
		return 1;
	else if (argc > 3)
		check(argv[2], argv[3], writable);
	free(p.want);
	free(p.got);
	free(p.part);
	return 0;
}
