"""Network isolation: whoever can connect to a program can execute code in it.

Reverb and Courier listen on all interfaces (the address `[::]` is compiled in), know no password,
and Courier unpickles what it receives, which executes code. So a program runs in a network
namespace of its own, whose only interface is a loopback that only its own processes see. Linux
allows this to root, and on most systems to everybody within a user namespace. It cannot be undone,
so only a process that exists for the program does it.
"""

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000  # linux/sched.h
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1  # linux/sockios.h, linux/if.h


def isolate() -> str:
    """Moves this process and its children into a network namespace; "", or why it could not.

    Without root this must come before the process has a second thread: before NumPy is imported.
    """
    user, group = os.getuid(), os.getgid()
    try:
        _unshare(_CLONE_NEWNET)
    except OSError as as_we_are:
        try:
            _unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
        except (OSError, AttributeError):
            return str(as_we_are)
        _keep_identity(user, group)
    except AttributeError:
        return "this system has no namespaces"
    _raise_loopback()
    return ""


def probe() -> str:
    """What `isolate` would return, asked in a process that ends at once."""
    command = [sys.executable, "-S", __file__]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def check_allowed(refused: str) -> None:
    """Refuses to run where others could connect, for a reason that `isolate` returned."""
    if refused:
        raise ValueError(
            "Whoever can connect to a program can execute code in it, and this system refuses it a "
            f"private network namespace ({refused}): allow user namespaces (sysctl "
            "kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0; "
            "in a container, --cap-add SYS_ADMIN), or give --listen-everywhere where you trust "
            "everybody on the network and on this machine."
        )


def _unshare(flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _keep_identity(user: int, group: int) -> None:
    """Keeps user and group, which a new user namespace does not know."""
    kept = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
    for name, text in kept.items():
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        answer = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        (flags,) = struct.unpack_from("h", answer, 16)
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


if __name__ == "__main__":
    sys.stdout.write(isolate())
