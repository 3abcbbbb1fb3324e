#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""headrace.torch in the place of safetensors.torch: the newest package from PyPI has the same signatures,
writes the same bytes, and its own tests for PyTorch pass with our functions in it. What they test that is
not ours, or is different on purpose, is listed with the reason; an entry that passes is one too many."""
import importlib
import inspect
import os
import shutil
import struct
import sys
import tempfile
import unittest

try:
    import numpy  # noqa: F401
    import torch
except ImportError:
    sys.exit(77)

import pypi

sys.path.insert(0, pypi.packages("safetensors", "safetensors", any_python=True))
import safetensors  # noqa: E402
import safetensors.torch as theirs  # noqa: E402

import headrace  # noqa: E402
import headrace.torch as ours  # noqa: E402

PUBLIC = ("load", "load_file", "load_model", "save", "save_file", "save_model")
MODULES = ("test_pt_comparison", "test_pt_model", "test_pread_backend", "test_simple", "test_multithreaded")
WORDS = "checks the words of an error; ours has its own, and the same class"
CLASS = "wants the other package's exception class; ours is an OSError or a built-in one"
NOT_OURS = {
    "test_pt_comparison.TorchTestCase.test_sparse": WORDS,
    "test_simple.ErrorsTestCase.test_file_not_found": WORDS,
    "test_simple.WindowsTestCase.test_get_correctly_dropped": CLASS,
}


def parameters(function, drop=()):
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()
            if p.name not in drop]


class Signatures(unittest.TestCase):
    def test_functions(self):
        """Everything that they take; what we take besides is by keyword and may be left out."""
        public = {n for n in vars(theirs) if not n.startswith("_") and
                  getattr(vars(theirs)[n], "__module__", "") == "safetensors.torch"}
        self.assertEqual(public - {"storage_ptr", "storage_size"}, set(PUBLIC))
        for name in PUBLIC:
            mine, other = parameters(getattr(ours, name)), parameters(getattr(theirs, name))
            more = [p for p in mine if p[0] not in {o[0] for o in other}]
            self.assertEqual([p for p in mine if p not in more], other, name)
            for p in more:
                self.assertEqual(p[1], inspect.Parameter.KEYWORD_ONLY, (name, p))
                self.assertIsNot(p[2], inspect.Parameter.empty, (name, p))

    def test_safe_open(self):
        for name in (n for n in dir(safetensors.safe_open) if not n.startswith("_")):
            mine = parameters(getattr(ours.safe_open, name))
            try:
                other = parameters(getattr(safetensors.safe_open, name))
            except ValueError:  # built in, and says nothing
                continue
            self.assertEqual([p[0] for p in mine[:len(other)]], [p[0] for p in other], name)
        for name in ("__enter__", "__exit__", "keys", "prefetch"):
            self.assertTrue(callable(getattr(ours.safe_open, name)), name)
        accepted = inspect.signature(ours.safe_open)
        try:
            for p in inspect.signature(safetensors.safe_open).parameters.values():
                self.assertIn(p.name, accepted.parameters)
                if p.kind != inspect.Parameter.POSITIONAL_OR_KEYWORD:
                    self.assertEqual(accepted.parameters[p.name].kind, p.kind, p.name)
        except ValueError:
            pass
        accepted.bind("f", framework="pt", device=0, backend="pread", copy=False)


class Bytes(unittest.TestCase):
    def test_same(self):
        torch.manual_seed(3)
        words = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
                 "complex64", "uint64", "uint32", "uint16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
                 "float8_e5m2fnuz", "float8_e8m0fnu"]
        tensors = {"scalar": torch.tensor(1.5), "empty": torch.zeros(3, 0)}
        for i, word in enumerate(w for w in words if hasattr(torch, w)):
            data = torch.randint(0, 100, (3 + i, 2, 8), dtype=torch.uint8)
            dtype = getattr(torch, word)
            tensors[f"z{i}.{word}"] = (data > 50) if dtype == torch.bool else data.view(dtype)
        for metadata in (None, {"format": "pt"}):
            want = theirs.save(tensors, metadata)
            self.assertEqual(ours.save(tensors, metadata), want)
            got = ours.load(want)
            self.assertEqual(set(got), set(tensors))
            for name, tensor in tensors.items():
                self.assertEqual((got[name].dtype, got[name].shape), (tensor.dtype, tensor.shape))
                if tensor.nelement():
                    self.assertTrue(torch.equal(got[name].reshape(-1).view(torch.uint8),
                                                tensor.reshape(-1).view(torch.uint8)), name)


class Attacks(unittest.TestCase):
    """Headers that want too much: refused, each with a sentence, and in little time and memory."""

    def refuse(self, data, words, code="HR_E_BAD_FORMAT"):
        with tempfile.NamedTemporaryFile(suffix=".safetensors") as f:
            f.write(data)
            f.flush()
            with self.assertRaises(headrace.Error) as caught:
                ours.load_file(f.name)
            self.assertEqual(caught.exception.code_name, code)
            self.assertIn(words, str(caught.exception))
            self.assertIn(f.name, str(caught.exception))
            with self.assertRaises(safetensors.SafetensorError):
                theirs.load_file(f.name)
            return str(caught.exception)

    def test_each(self):
        def file(header, data=b"", length=None):
            return struct.pack("<Q", len(header) if length is None else length) + header + data

        one = b'{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}'
        many = b",".join(b'"w%d":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}' % i for i in range(100_000))
        deep = b'{"a":' + b"[" * 100_000
        sentences = set()
        vast = b'{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}}'
        for data, words in (
                (file(one + b"}", bytes(16), 1000), "header of 1000 bytes does not fit"),
                (file(b"{" + many + b"}", bytes(16)), "w0 and w1 overlap"),
                (file(one + b"}", bytes(16), 2**64 - 1), "18446744073709551615"),
                (file(one + b"}", bytes(16), 100_000_001), "the format allows 100000000"),
                (file(one + b"}", bytes(15)), "1 bytes before"),
                (file(one + b"}", bytes(17)), "1 bytes follow"),
                (file(vast, bytes(16)), "more than 2^64 elements"),
                (file(deep), "'{' of a tensor expected"),
                (b"\0" * 7, "has 7 bytes"),
                (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git lfs pull")):
            sentences.add(self.refuse(data, words).split(": ", 1)[1])
        self.assertEqual(len(sentences), 10)


class Theirs(unittest.TestCase):
    """The tests of the package itself, our functions in the place of its own."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="headrace-python-")
        self.addCleanup(shutil.rmtree, self.dir)
        source = os.path.join(pypi.source("safetensors"), "bindings", "python", "tests")
        shutil.copytree(source, os.path.join(self.dir, "tests"))
        os.makedirs(os.path.join(self.dir, "tests", "data"), exist_ok=True)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.dir)
        sys.path.insert(0, os.path.join(self.dir, "tests"))
        self.addCleanup(sys.path.remove, os.path.join(self.dir, "tests"))
        old = {name: getattr(theirs, name) for name in PUBLIC}
        plain_open = safetensors.safe_open

        def either(filename, framework="pt", device="cpu", **more):
            opener = ours.safe_open if framework == "pt" else plain_open
            return opener(filename, framework, device, **more)

        safetensors.safe_open = theirs.safe_open = either
        for name in PUBLIC:
            setattr(theirs, name, getattr(ours, name))

        def restore():
            safetensors.safe_open = theirs.safe_open = plain_open
            for name, function in old.items():
                setattr(theirs, name, function)

        self.addCleanup(restore)

    def test_all(self):
        suite, names = unittest.TestSuite(), []
        for name in MODULES:
            module = importlib.import_module(name)
            found = list(unittest.defaultTestLoader.loadTestsFromModule(module))
            found += [unittest.FunctionTestCase(f) for n, f in vars(module).items()
                      if n.startswith("test_") and inspect.isfunction(f)]
            suite.addTests(found)
        outcome = unittest.TestResult()
        suite.run(outcome)
        names = {self.short(t): text for t, text in outcome.failures + outcome.errors}
        print(f"\n{outcome.testsRun} tests of safetensors {safetensors.__version__} ran with headrace.torch, "
              f"{len(outcome.skipped)} skipped by themselves, {len(NOT_OURS)} do not apply:")
        for name, reason in NOT_OURS.items():
            print(f"  {name}: {reason}")
        for test, reason in outcome.skipped:
            print(f"  {self.short(test)}: skipped: {reason}")
        wrong = {n: t for n, t in names.items() if n not in NOT_OURS}
        self.assertEqual(wrong, {}, "\n".join(wrong.values()))
        self.assertEqual(set(NOT_OURS) - set(names), set(), "listed, but they pass")
        self.assertGreater(outcome.testsRun, 60)

    @staticmethod
    def short(test):
        if isinstance(test, unittest.FunctionTestCase):
            return f"{test._testFunc.__module__}.{test._testFunc.__name__}"
        return test.id()


if __name__ == "__main__":
    unittest.main()
