# SPDX-License-Identifier: Apache-2.0
"""safetensors as rows: files written by the safetensors package, row i of every tensor compared with what the
package reads."""
import common

common.need("safetensors")

import numpy as np  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402

TYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
         "float16", "float32", "float64"]


class Safetensors(common.FormatTest):
    def compare(self, path, **options):
        dump = self.dump(path, format="safetensors", **options)
        with safe_open(path, framework="np") as file:
            for name, field in dump.fields.items():
                tensor = file.get_tensor(name)
                self.assertEqual(dump.count, len(tensor))
                self.assertEqual(field["shape"], list(tensor.shape[1:]))
                for got, row in zip(dump.samples, tensor):
                    self.assertEqual(got[name], row.tobytes(), name)
        return dump

    def test_rows(self):
        rng = np.random.default_rng(9)
        tensors = {name: rng.integers(0, 2, (50, 3)).astype(name) for name in TYPES}
        tensors["label"] = rng.integers(0, 9, 50)
        tensors["image"] = rng.integers(0, 255, (50, 3, 8, 8), np.uint8)
        save_file(tensors, self.path("x.safetensors"), metadata={"k": "v"})
        dump = self.compare(self.path("x.safetensors"))
        self.assertEqual(set(dump.fields), set(tensors))
        self.assertEqual(dump.fields["image"]["dtype"], "u8")
        self.assertEqual(dump.fields["label"]["dtype"], "i64")

    def test_chosen(self):
        save_file({"w": np.zeros((4, 4)), "x": np.ones((9, 2)), "s": np.array(3.0)},
                  self.path("x.safetensors"))
        self.refused(["4 rows", "9", "name fields"], self.path("x.safetensors"),
                     format="safetensors")
        self.compare(self.path("x.safetensors"), field="x")

    def test_not_by_itself(self):
        save_file({"w": np.zeros((4, 4), np.float32)}, self.path("model.safetensors"))
        self.refused(["say format safetensors"], self.path("model.safetensors"))
        self.refused(["say format safetensors"], self.dir)
        self.assertEqual(self.dump(self.dir, format="safetensors").count, 4)

    def test_several_files(self):
        for k in range(3):
            save_file({"x": np.full((k + 1, 2), k, np.int32)}, self.path(f"{k}.safetensors"))
        dump = self.dump(self.dir, format="safetensors")
        self.assertEqual([s["x"][0] for s in dump.samples], [0, 1, 1, 2, 2, 2])


if __name__ == "__main__":
    common.main()
