#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Turn the PTX of all kernels into C strings, one for what comes before the first and one for each of them,
# so that each can be given to the driver by itself: embed.sh PTX OUT
set -eu
{
	echo "/* SPDX-License-Identifier: Apache-2.0 */"
	echo "/* Made by embed.sh. */"
	echo '#include "mem/cuda_kernels.h"'
	echo "const char hr__ptx_head[] ="
	sed -e '/^[[:space:]]*\/\//d' -e '/^$/d' -e 's/[\\"]/\\&/g' -e 's/^/"/' -e 's/$/\\n"/' \
		-e 's/^"\.visible \.entry \([A-Za-z0-9_]*\)(.*/;\nstatic const char text_\1[] =\n&/' "$1"
	echo ";"
	echo "const struct hr__ptx hr__ptx_kernels[] = {"
	sed -n -e 's/^\.visible \.entry \([A-Za-z0-9_]*\)(.*/	{"\1", text_\1},/p' "$1"
	echo "	{0, 0},"
	echo "};"
} >"$2"
