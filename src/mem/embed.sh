#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Turn a text file into a C string: embed.sh TEXT NAME OUT
set -eu
{
	echo "/* SPDX-License-Identifier: Apache-2.0 */"
	echo "/* Made by embed.sh. */"
	echo "extern const char $2[];"
	echo "const char $2[] ="
	sed -e '/^[[:space:]]*\/\//d' -e '/^$/d' -e 's/[\\"]/\\&/g' -e 's/^/"/' -e 's/$/\\n"/' "$1"
	echo ";"
} >"$3"
