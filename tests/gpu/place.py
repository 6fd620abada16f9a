"""Where the program, its test programs and its recipes lie: in this source tree, or in a bundle
(a folder with the program and all that it needs, for other systems)."""
import glob
import io
import os
import subprocess
import sys
import tarfile

HERE = os.path.dirname(os.path.realpath(__file__))
BUNDLE = os.path.dirname(HERE)  # the bundle's folder, if this file is in a bundle
IS_BUNDLE = os.path.isdir(os.path.join(BUNDLE, "libexec"))
ROOT = BUNDLE if IS_BUNDLE else os.path.dirname(os.path.dirname(HERE))
TESTS = os.path.join(ROOT, "tests")  # support/, parity/


def name_libraries():
    """Adds the folders of NVIDIA's packages for Python, which PyTorch brings, to the end of
    TRIREME_CUDA_LIBRARIES: cuBLASLt, cuDNN and NCCL may be nowhere else. Returns all folders that
    the variable then names. With "none" it stays as it is: no such library is used."""
    if os.environ.get("TRIREME_CUDA_LIBRARIES") == "none":
        return []
    python = os.environ.get("PYTHON", "python3")
    try:
        done = subprocess.run([python, "-c", "import sys; print(*sys.path, sep='\\n')"],
                              capture_output=True, text=True, check=False)
        paths = done.stdout.splitlines()
    except OSError:
        paths = []
    folders = os.environ.get("TRIREME_CUDA_LIBRARIES", "").split(":")
    for path in filter(None, [*sys.path, *paths]):
        folders += sorted(glob.glob(os.path.join(path, "nvidia", "*", "lib")))
    folders = [f for f in dict.fromkeys(folders) if f and ":" not in f]
    os.environ["TRIREME_CUDA_LIBRARIES"] = ":".join(folders)
    return folders


class Missing(Exception):
    """There is no program; the text says what to do."""


def starts(program):
    try:
        done = subprocess.run([program, "version"], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def unpack(archive, folder):
    """Unpacks a bundle's archive, and returns the bundle's folder. tar needs the program zstd for
    that; where zstd is not installed, a package of Python may decompress the archive."""
    done = subprocess.run(["tar", "-xf", archive, "-C", folder], capture_output=True, check=False)
    if done.returncode:
        with tarfile.open(fileobj=io.BytesIO(decompressed(archive))) as files:
            files.extractall(folder)
    return os.path.join(folder, os.path.basename(archive)[:-len(".tar.zst")])


def decompressed(path):
    with open(path, "rb") as file:
        packed = file.read()
    try:
        from compression import zstd  # pylint: disable=import-outside-toplevel
        return zstd.decompress(packed)
    except ImportError:
        pass
    try:
        import pyarrow  # pylint: disable=import-outside-toplevel
        with pyarrow.CompressedInputStream(pyarrow.BufferReader(packed), "zstd") as stream:
            return stream.read()
    except ImportError:
        raise Missing(f"{path} cannot be unpacked: install zstd, or name an unpacked bundle in "
                      "PREFIX_GPU") from None


class Place:
    """Where a program to test lies. `prefix` is a build folder (build/release), an unpacked bundle,
    or a bundle's archive, which is unpacked to `folder`. If `prefix` is None, it is the bundle that
    this file is in; in a source tree, the build folder if its program starts, else the newest
    archive in build/."""

    def __init__(self, prefix, folder):
        if prefix is None:
            prefix = self._find()
        if os.path.isfile(prefix):
            prefix = unpack(prefix, folder)
        self.prefix = os.path.abspath(prefix)
        self.is_bundle = os.path.isdir(os.path.join(self.prefix, "libexec"))
        self.program = os.path.join(self.prefix, "bin", "trireme")
        if not starts(self.program):
            raise Missing(f"{self.program} does not start: `make build`, or name an unpacked "
                          "bundle in PREFIX_GPU")

    @staticmethod
    def _find():
        build = os.path.join(ROOT, "build", "release")
        if IS_BUNDLE:
            return ROOT
        archives = glob.glob(os.path.join(ROOT, "build", "trireme-*.tar.zst"))
        if starts(os.path.join(build, "bin", "trireme")) or not archives:
            return build
        return max(archives, key=os.path.getmtime)

    def test_program(self, name):
        return os.path.join(self.prefix, "tests" if self.is_bundle else "bin", name)

    def trap_module(self):
        return os.path.join(self.prefix, "tests" if self.is_bundle else "lib", "trap")

    def modules(self):
        """The folder of the module cuda: the one that TRIREME_MODULES names (an emulated GPU), or
        the program's own."""
        return os.environ.get("TRIREME_MODULES") or os.path.join(self.prefix, "lib", "trireme")

    def recipe(self, name):
        base = os.path.join(self.prefix, "share", "trireme") if self.is_bundle else ROOT
        return os.path.join(base, "recipes", f"{name}.yaml")
