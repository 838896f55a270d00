"""Makes a system call by the numbers of 32-bit programs, which a careless filter takes for other ones."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os

from tests.hostile.attacking.kernel import NotHereError
from tests.hostile.attacking.target import Target

GETPID = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
"""`mov eax, 20; int 0x80; ret`"""


def attack(target: Target) -> bool:
    if os.uname().machine != "x86_64":
        raise NotHereError
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(GETPID)
    code = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    result = int(code())
    if result < 0:
        if -result == errno.ENOSYS:
            raise NotHereError
        raise OSError(-result, "")
    return result == os.getpid()
