# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# completion.bash - words for the command headrace, asked of its own help so that they are never old.

_headrace()
{
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words help

	if ((COMP_CWORD == 1)); then
		words=$(headrace --help 2>/dev/null | sed -n 's/^  \([a-z]\+\) \+[a-z].*/\1/p')
	else
		help=$(headrace "${COMP_WORDS[1]}" --help 2>/dev/null)
		if [[ $before == --* ]]; then
			# The choices of an option stand behind it: "--rw read|write".
			words=$(sed -n "s/^  $before \([a-z0-9]\+|[a-z0-9|]*\).*/\1/p" <<<"$help" | tr '|' '\n')
		fi
		[[ -z $words && $word == -* ]] && words=$(sed -n 's/^  \(--[a-z0-9-]\+\).*/\1/p' <<<"$help")
	fi
	if [[ -n $words ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
	else
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
	fi
}
complete -o filenames -F _headrace headrace
