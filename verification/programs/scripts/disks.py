"""Disks that fail, and files that are not as Python has them: amid training, or as it is written.

What a failing disk keeps is said by us; what the script prints, and how it ends, is its own.
"""

import builtins
import errno
import os
import resource
import sys

from training import digest, train


def _fails(name):
    def failing(*_, **__):
        number = getattr(errno, name)
        raise OSError(number, os.strerror(number))

    return failing


def renames(name):
    """As on a network's disk: no file takes its place."""
    train(2)
    os.replace = os.rename = os.link = _fails(name)
    train(3)


def syncs(name):
    train(2)
    os.fsync = os.fdatasync = _fails(name)
    train(3)


def files_made(name):
    """Each file is refused from amid the recording on."""
    train(2)
    plain = os.open

    def opens(path, flags, *rest, **options):
        if flags & os.O_CREAT:
            _fails(name)()
        return plain(path, flags, *rest, **options)

    os.open = opens
    train(3)


def small_files(size):
    """No file may be larger; Python is told so by an error, as it ignores the signal."""
    train(1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
    train(4)


def own_open():
    """A script that counts what it opens."""
    opened, plain = [], builtins.open

    def counted(file, *rest, **options):
        opened.append(file)
        return plain(file, *rest, **options)

    builtins.open = counted
    train(5)
    with open(__file__) as file:
        print(len(file.readline()))
    print(sum(each == __file__ for each in opened))
    builtins.open = plain


def no_open():
    """Nothing can be opened by name in the script's own steps."""
    train(2)
    plain, builtins.open = builtins.open, _fails("EPERM")
    train(3)
    builtins.open = plain


def stale_folder():
    """The working folder's disk is gone from a network."""
    train(2)
    os.getcwd = _fails("ESTALE")
    train(3)


def other_modules():
    """Another dictionary in the place of ``sys.modules``."""
    train(2)
    sys.modules = dict(sys.modules)
    train(3)


def removed_output():
    """The folder of the working folder is gone as it ends."""
    import shutil

    train(5)
    shutil.rmtree(os.getcwd())


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
    print(digest())
