/*===- Library.h - tbc as a shared library -----------------------------------===*
 *
 * The C interface of libtbc.so, which the Python package loads (docs/python.md). It runs the
 * subcommands that plan, in the calling process. C types alone cross it, so the library needs no
 * Python headers, and one build serves all versions of Python.
 *
 *===------------------------------------------------------------------------===*/

#ifndef TBC_TOOLS_LIBRARY_LIBRARY_H
#define TBC_TOOLS_LIBRARY_LIBRARY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TBC_EXPORT __attribute__((visibility("default")))

/* The answer of a command. Texts are UTF-8 and end with a zero byte; they live until
 * tbc_release(). */
struct TbcAnswer {
  int32_t exitCode;   /* as the program's: docs/errors.md */
  int32_t wasStopped; /* `poll` ended it; the other members say nothing */
  const char *output; /* of standard output; `new -o -` puts bytes of any value there */
  int64_t outputSize;
  const char *messages; /* of standard error, a line each, e.g. "tbc: warning: .." */
  const char *error;    /* with its code at the end; empty if there is none */
};

/* Called about 20 times a second from the thread that called tbc_command(). `phase` is a text such
 * as "searching: 160 of 2048 configurations", or empty. Returns 0 to end the command. */
typedef int32_t (*TbcPoll)(const char *phase);

/* Runs a subcommand. `words`: those of the command line behind "tbc", the model's path among them.
 * Commands of several threads run one after the other. `poll` may be null. */
TBC_EXPORT const struct TbcAnswer *tbc_command(int64_t count, const char *const *words,
                                               TbcPoll poll);
TBC_EXPORT void tbc_release(const struct TbcAnswer *answer);

/* Returns the subcommands and their flags as JSON: {"plan": {"help": .., "flags": [{"name":
 * "memory-limit", "kind": "text", "values": [..], "help": ..}, ..]}, ..}. */
TBC_EXPORT const char *tbc_flags(void);

/* Returns the version of tbc, e.g. "0.1.0". */
TBC_EXPORT const char *tbc_version(void);

/* Sets the program `tbc` that --trial starts. */
TBC_EXPORT void tbc_set_program(const char *path);

#ifdef __cplusplus
}
#endif

#endif /* TBC_TOOLS_LIBRARY_LIBRARY_H */
