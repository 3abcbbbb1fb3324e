/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/stdin.c - takes the place of stdin for the JSON library, which is linked in as an archive: it
 * asks whether a stream is stdin, by a reference that a shared library cannot have. Nothing reads it.
 */
#include <stdio.h>

extern FILE *__wrap_stdin;

FILE *__wrap_stdin;
