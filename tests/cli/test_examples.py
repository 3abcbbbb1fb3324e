#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples do what their first lines say."""
import os

import common


class Examples(common.CliTest):
    def test_hello(self):
        f = self.raw("f", b"...hello" + b"." * 56 + b", world!" + b"." * 100)
        done = common.run(f, program=os.environ["HELLO"])
        self.assertEqual((done.code, done.out), (0, "13 bytes: hello, world!\n"), str(done))
        done = common.run(self.path("none"), program=os.environ["HELLO"])
        self.assertEqual(done.code, 1)
        self.assertIn("none", done.err)

    def test_batches(self):
        f = self.tokens("t", 64 * 20 + 1)
        done = common.run(f, 64, 5, program=os.environ["BATCHES"])
        self.assertEqual(done.code, 0, str(done))
        self.assertEqual(len(done.out.splitlines()), 4)


if __name__ == "__main__":
    common.main()
