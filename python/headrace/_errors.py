# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class for all failures of the library, which are OSErrors with a sentence."""
import errno


class Error(OSError):
    """A call of the library failed.

    ``errno`` is the code (errno values, or those of HR_E_* from 1000 on), ``code_name`` its symbol,
    and ``str()`` the sentence: which object, the cause, what to do.
    """

    def __init__(self, code, name, sentence):
        super().__init__(code, sentence)
        self.code_name = name

    def __str__(self):
        return self.strerror

    def __reduce__(self):
        return (type(self), (self.errno, self.code_name, self.strerror))


class NotFound(Error, FileNotFoundError):
    """A file, or a tensor, that is not there."""


class Timeout(Error, TimeoutError):
    """A drive did not answer in time."""


_KINDS = {errno.ENOENT: NotFound, errno.ETIMEDOUT: Timeout}


def make(code, name, sentence):
    """The exception for a code; called by the C part."""
    return _KINDS.get(code, Error)(code, name, sentence)
