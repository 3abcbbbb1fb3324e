#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verbs explain and check: their JSON, and that every no has a reason."""
import errno

import common


class Doctor(common.CliTest):
    def test_explain(self):
        f = self.raw("data", b"x" * 100000)
        got = self.ok("explain", "--device", "host", "--json", f).json
        self.assertEqual(got["path"], "host")
        self.assertTrue(got["reason"])
        self.assertEqual([r["path"] for r in got["refused"]], ["pagecache", "bounce", "p2p"])
        for refused in got["refused"]:
            self.assertTrue(refused["reason"])
        self.assertEqual(set(got["alignment"]), {"offset_bytes", "memory_bytes"})
        self.assertIn(got["residency"]["state"], ("hot", "cold", "mixed", "unknown"))
        self.assertTrue(got["extents"] or got["extents_reason"])
        self.assertEqual(got["layers"][0]["name"], got["file_system"])
        self.assertRegex(got["residency_map"], r"^[#+.?]{1,64}$")
        self.assertEqual(got["read"]["reads"], got["read"]["in_place"] + got["read"]["staged"])
        self.assertGreaterEqual(got["read"]["bytes"], 100000)
        for key in ("block_device", "file_system", "device", "queue"):
            self.assertTrue(key in got, key)

    def test_explain_follows_the_environment(self):
        f = self.raw("data", b"x" * 100000)
        got = self.ok("explain", "--device", "host", "--json", f, env={"HEADRACE_PATH": "bounce"}).json
        self.assertEqual(got["path"], "bounce")

    def test_explain_range(self):
        f = self.raw("data", b"x" * 100000)
        got = self.ok("explain", "--device", "host", "--json", "--offset", "4K", "--length", "4K",
                      f).json
        self.assertLessEqual(got["residency"]["pages"], 1)
        self.fails(1, [f, "200000"], "explain", "--device", "host", "--offset", "200000", f)

    def test_explain_sparse(self):
        f = self.path("sparse")
        with open(f, "wb") as out:
            out.truncate(1 << 20)
        got = self.ok("explain", "--device", "host", "--json", f).json
        self.assertEqual(got["size_bytes"], 1 << 20)
        if not got["extents_reason"]:
            self.assertTrue(all("hole" in e["flags"] for e in got["extents"]), got["extents"])

    def test_explain_for_people(self):
        done = self.ok("explain", "--device", "host", self.raw("data", b"x" * 9999))
        for word in ("file", "stands on", "path", "not", "direct I/O", "extents"):
            self.assertRegex(done.out, rf"(?m)^{word} ")

    def test_check(self):
        f = self.raw("data", b"x" * 100000)
        got = self.ok("check", "--json", self.dir, f).json
        self.assertEqual([g["name"] for g in got["groups"]],
                         ["kernel", "gpu", "storage", "file system", "limits", "libraries"])
        items = {i["name"]: i for g in got["groups"] for i in g["items"]}
        for item in items.values():
            self.assertIn(item["state"], ("ok", "limited", "no"))
            self.assertTrue(item["cause"], item)
        for name in ("version", "io_uring", "PCI_P2PDMA", "RLIMIT_MEMLOCK", "IOMMU", "udev"):
            self.assertIn(name, items)
        self.assertIsInstance(got["pairs"], list)
        for pair in got["pairs"]:
            self.assertTrue(pair["cause"] and (pair["fix"] or pair["direct"] == "ok"), pair)

    def test_measure(self):
        """What was measured is a line and the range of the pair; a file too short is said to be."""
        f = self.raw("data", b"x" * (4 << 20))
        got = self.ok("check", "--device", "host", "--measure", "--json", f, self.dir).json
        items = [i for g in got["groups"] for i in g["items"] if i["name"] == "measured"]
        self.assertEqual([i["state"] for i in items], ["ok", "ok"], items)
        for pair in got["pairs"]:
            if pair["basis"] == "measured":
                self.assertLess(0, pair["expected_bytes_per_second"]["low"])
                self.assertLess(pair["expected_bytes_per_second"]["low"],
                                pair["expected_bytes_per_second"]["high"])
        got = self.ok("check", "--device", "host", "--measure", "--json", self.raw("s", b"x")).json
        items = {i["name"]: i for g in got["groups"] for i in g["items"]}
        self.assertEqual(items["measured"]["state"], "limited")
        self.assertIn("too short", items["measured"]["cause"])
        self.fails(2, ["--measure needs the machine itself"], "check", "--measure", "--root", self.dir)
        self.no_leftovers("data", "s")

    def test_check_for_people(self):
        done = self.ok("check")
        self.assertRegex(done.out, r"(?m)^kernel$")

    def test_require(self):
        f = self.raw("data", b"x" * 100000)
        direct = self.ok("explain", "--device", "host", "--json", f).json["direct"]
        done = common.run("check", "--device", "host", "--require", "direct", "--json", f)
        self.assertEqual(done.code, 0 if direct else 3, str(done))
        done = common.run("check", "--device", "host", "--require", "direct", self.path("none"))
        self.assertEqual(done.code, 3, str(done))

    def test_check_sees_the_confinement(self):
        got = self.ok("check", "--json", confine=["--deny-uring", errno.EPERM]).json
        items = {i["name"]: i for g in got["groups"] for i in g["items"]}
        self.assertEqual(items["io_uring"]["state"], "no")
        self.assertTrue(items["io_uring"]["fix"])
        self.assertEqual(items["seccomp"]["state"], "limited")




if __name__ == "__main__":
    common.main()
