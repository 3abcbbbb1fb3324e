# SPDX-License-Identifier: Apache-2.0
"""Makes the guest's initramfs: programs of this machine with the libraries they need, our own
programs, kernel modules with what they depend on, and the guest's scripts. Knows no QEMU.
"""
import lzma
import os
import re
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
OURS = "/ours"

PROGRAMS = """bash basename blockdev cat chattr chmod chown cmp cp cut date dd dirname dmesg dmsetup
env false grep head id insmod ip kill ln losetup ls lsmod mkdir mkfs.btrfs mkfs.ext4 mkfs.vfat
mkfs.xfs mknod mktemp modprobe mount mountpoint mv od printf readlink rm rmdir rmmod sed seq setpriv
sha256sum sleep sort stat stty sync tac tail timeout touch tr true truncate umount uname wc"""
MODULES = """vfat nls_ascii nls_cp437 nls_iso8859-1 nls_utf8 nfsd nfsv4 nfs xfs btrfs md-mod raid0 dm-mod loop
overlay squashfs"""
# Symbolic links of Debian's merged /usr.
LINKS = (("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib"), ("lib64", "usr/lib64"))


def which(name):
    path = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
    if not path:
        raise FileNotFoundError(f"{name} is not installed")
    return path


def libraries(program):
    """What the loader would load, as paths."""
    out = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    return re.findall(r"(?:=> |^\s)(/\S+) \(0x", out, re.M)


class Image:
    def __init__(self, root, kernel, release):
        self.root, self.kernel, self.release = root, kernel, release
        shutil.rmtree(root, ignore_errors=True)
        for folder in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "dev", "proc", "sys", "tmp",
                       "run", "root", "etc", "tests"):
            os.makedirs(os.path.join(root, folder))
        for name, target in LINKS:
            os.symlink(target, os.path.join(root, name))
        self.have = set()

    def place(self, source, target=None):
        """Copy a file to the same path as here, or to another one."""
        target = self.root + (target or os.path.abspath(source))
        if target in self.have:
            return
        self.have.add(target)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(os.path.realpath(source), target)
        shutil.copymode(os.path.realpath(source), target)

    def program(self, path, target=None):
        self.place(path, target)
        for library in libraries(path):
            self.place(library)

    def our_program(self, path):
        """By name, and where nothing is mounted over it, whatever folder this one lies in. It finds its
        library from its own place, so both keep theirs to each other."""
        path = os.path.abspath(path)
        self.place(path, OURS + path)
        for library in libraries(path):
            self.place(library, OURS + library if library.startswith(ROOT + "/") else None)
        os.symlink(OURS + path, f"{self.root}/usr/bin/{os.path.basename(path)}")

    def modules(self, names):
        """Unpacked, because this machine's modprobe may need a library for that which ldd misses."""
        folder = f"/usr/lib/modules/{self.release}"
        depends = {}
        with open(self.kernel + folder + "/modules.dep", encoding="ascii") as lines:
            for line in lines:
                file, needs = line.strip().split(":")
                depends[re.sub(r"\.ko.*", "", os.path.basename(file)).replace("-", "_")] = (
                    [file] + needs.split())
        for file in {file for name in names for file in depends[name.replace("-", "_")]}:
            target = f"{self.root}{folder}/{file.removesuffix('.xz')}"
            os.makedirs(os.path.dirname(target), exist_ok=True)
            opener = lzma.open if file.endswith(".xz") else open
            with opener(f"{self.kernel}{folder}/{file}", "rb") as packed, open(target, "wb") as out:
                shutil.copyfileobj(packed, out)
        # The lists of what is built in are in no package: depmod misses them, and is right otherwise.
        subprocess.run([which("depmod"), "-b", self.root, self.release], check=True,
                       stderr=subprocess.DEVNULL)

    def pack(self, archive):
        with open(archive, "wb") as out:
            find = subprocess.Popen(["find", "."], cwd=self.root, stdout=subprocess.PIPE)
            subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], cwd=self.root,
                           stdin=find.stdout, stdout=out, check=True)
            find.wait()


def make(folder, release, programs, modules, fakecuda):
    """The archive FOLDER/initramfs with our own programs, (.ko) modules and driver of CUDA."""
    image = Image(f"{folder}/root", f"{folder}/kernel", release)
    for name in PROGRAMS.split():
        path = which(name)
        image.program(path, "/usr/bin/" + name)
    for path in programs:
        image.our_program(path)
    image.modules(MODULES.split())
    image.program(fakecuda, "/fakecuda/libcuda.so.1")
    for path in modules:
        image.place(path, "/modules/" + os.path.basename(path))
    for name in os.listdir(f"{HERE}/guest"):
        image.place(f"{HERE}/guest/{name}", "/init" if name == "init" else f"/tests/{name}")
    os.chmod(image.root + "/init", 0o755)
    image.pack(f"{folder}/initramfs")
    return f"{folder}/initramfs"
