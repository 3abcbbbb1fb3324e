# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: Apache-2.0
# scripts/bundle.sh - sourced by ./dev: a folder that runs on a machine with nothing but a libc and a
# GPU driver. It knows how to make and check the bundle; what runs there is scripts/bundle_run.sh.

bundle=build/gpu
bundle_limit_mib=40
# Everything else must be inside: these come with every libc.
bundle_allowed='^(libc|libm|libdl|libpthread|librt|ld-linux-x86-64|ld-linux-aarch64)\.so'

make_bundle()
{
	configure build/static --prefix "$root/$bundle" --libdir lib -Dbundle=true \
		--buildtype=release -Db_ndebug=false
	compile build/static
	rm -rf "$bundle"
	mkdir -p "$bundle/bin" "$bundle/tests"
	cp build/static/cli/headrace build/static/bench/{cufile_peer,gather_once,load_whole} "$bundle/bin/"
	mkdir -p "$bundle/lib"
	cp build/static/bench/libbeside.so "$bundle/lib/"
	copy_drop_in
	copy_gpu_tests
	copy_bench_scripts
	copy_python
	add_fio
	cp scripts/bundle_run.sh "$bundle/run.sh"
	cp scripts/suite.sh "$bundle/suite.sh"
	chmod +x "$bundle/run.sh" "$bundle/suite.sh"
	check_bundle
}

# The drop-in in its own folder, and what measures it: as a program, and as a source that is compiled
# again where there is another cufile.h.
copy_drop_in()
{
	mkdir -p "$bundle/lib/cufile" "$bundle/bench" "$bundle/include"
	cp build/static/cufile/libcufile.so.0 "$bundle/lib/cufile/"
	cp cufile/cufile*.h "$bundle/include/"
	cp build/static/bench/cufile_read "$bundle/bin/"
	cp bench/cufile_read.c "$bundle/bench/"
}

# Programs and scripts of tests/gpu, found by their executable bit so that a new one needs no line here.
copy_gpu_tests()
{
	local program

	for program in build/static/tests/gpu/* tests/gpu/*.py; do
		[[ -f $program && -x $program ]] && cp "$program" "$bundle/tests/"
	done
	return 0
}

copy_bench_scripts()
{
	if compgen -G 'bench/*.py' >/dev/null; then
		mkdir -p "$bundle/bench"
		cp bench/*.py "$bundle/bench/"
	fi
}

# The package by the limited API, for any Python from 3.11 on; its examples, and its tests that a GPU
# makes a difference to.
copy_python()
{
	[[ -f build/static/python/headrace/_core.abi3.so ]] || return 0
	mkdir -p "$bundle/lib/python/headrace" "$bundle/examples" "$bundle/python"
	cp build/static/python/headrace/*.py build/static/python/headrace/_core.abi3.so \
		"$bundle/lib/python/headrace/"
	cp examples/*.py "$bundle/examples/"
	cp tests/python/test_{torch,cuda,distributed,reference}.py tests/python/pypi.py "$bundle/python/"
	# What test_reference.py compares with, if the tests have fetched it.
	if [[ -d build/cache/python-safetensors && -d build/cache/source-safetensors ]]; then
		mkdir -p "$bundle/python/cache/source-safetensors/source/bindings/python"
		cp -r build/cache/python-safetensors "$bundle/python/cache/"
		cp -r build/cache/source-safetensors/source/bindings/python/tests \
			"$bundle/python/cache/source-safetensors/source/bindings/python/"
	fi
}

# A fio that needs no library: the yardstick on a machine where nothing can be installed.
add_fio()
{
	if [[ ! -x build/cache/fio ]]; then
		build_fio >"$logs/fio.log" 2>&1 || {
			say "no static fio (see build/log/fio.log): the bundle goes without the yardstick"
			return 0
		}
	fi
	cp build/cache/fio "$bundle/bin/"
	# Where there is CUDA to build against, fio is a user of the drop-in too.
	if compgen -G 'build/cache/fio_*.orig.tar.gz' >/dev/null; then
		mkdir -p "$bundle/src"
		cp build/cache/fio_*.orig.tar.gz "$bundle/src/"
	fi
}

# The source comes from the distribution's own archive, through a private list of sources.
build_fio()
{
	local dir=$root/build/cache/fio-source apt

	rm -rf "$dir"
	mkdir -p "$dir/lists/partial"
	source_lists "$dir/sources.list"
	apt=(-o "Dir::Etc::SourceList=$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null
		-o "Dir::State::Lists=$dir/lists" -o "Dir::Cache::srcpkgcache=" -o "Dir::Cache::pkgcache="
		-o APT::Sandbox::User="$(id -un)")
	apt-get "${apt[@]}" update || return 1
	(cd "$dir" && apt-get "${apt[@]}" source --only-source fio) || return 1
	cp "$dir"/fio_*.orig.tar.gz "$root/build/cache/" || return 1
	(
		cd "$dir"/fio-*/ &&
			./configure --build-static --disable-native --disable-numa --disable-rdma \
				--disable-http --disable-xnvme --disable-pmem --disable-rados --disable-rbd \
				--disable-gfapi --disable-libzbc --disable-libnfs --disable-shm &&
			make -j "$jobs" fio && strip fio && cp fio "$root/build/cache/fio"
	) || return 1
	rm -rf "$dir"
}

# source_lists FILE - the machine's own archives again, as sources instead of binaries.
source_lists()
{
	local file

	: >"$1"
	for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
		[[ -f $file ]] && sed -n 's/^deb /deb-src /p' "$file" >>"$1"
	done
	for file in /etc/apt/sources.list.d/*.sources; do
		[[ -f $file ]] && "$python" scripts/deb822_sources.py "$file" >>"$1"
	done
	[[ -s $1 ]]
}

# check_bundle - nothing but libc is asked of the other machine, and it is small enough to carry.
check_bundle()
{
	local program wanted size

	for program in "$bundle"/bin/* "$bundle"/tests/* "$bundle"/lib/* "$bundle"/lib/*/*; do
		[[ -f $program ]] || continue
		wanted=$(readelf -d "$program" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
			grep -vE "$bundle_allowed" || true)
		[[ -z $wanted ]] || die "$program needs ${wanted//$'\n'/ }, which the bundle does not bring"
	done
	size=$(du -sm "$bundle" | cut -f 1)
	((size < bundle_limit_mib)) || die "$bundle has $size MiB, the limit is $bundle_limit_mib"
	say "bundle: $bundle, $size MiB, needs only $(oldest_libc)"
}

# The newest symbol version that any program asks for is the oldest libc that will do.
oldest_libc()
{
	local programs=("$bundle/bin/headrace")

	objdump -T "${programs[@]}" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1 | tr _ ' '
}

run_bundle()
{
	local libraries

	libraries=$(ldconfig -p || true)
	if command -v nvidia-smi >/dev/null || [[ $libraries == *libcuda.so.1* ]]; then
		OUT=${OUT:-$root/build/gpu/out} "$bundle/run.sh" "$@"
	else
		say "no NVIDIA driver here: copy $bundle to a machine with a GPU and start run.sh there;"
		say "results are written to \$OUT, or ./out"
	fi
}
