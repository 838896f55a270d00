"""Owns one process tree and ends all of it: run as a program between the caller and what it wants supervised.

Executed by `supervise` with the caller's interpreter, standard library only. It is the subreaper of the tree, so a
process that detaches itself (double fork, `setsid`) still becomes its child and is still found.

Comes in, on the control socket whose descriptor is the only argument: one JSON line with the command, then
`{"end": GRACE_S}` to end the tree by SIGTERM and, after that many seconds, SIGKILL, and `{"signal": NUMBER}` for the
command's process alone. Goes out: JSON lines, `{"started": PID}` or `{"failed": TEXT}`, `{"exited": WAIT_STATUS}`
(either with `"refused": true` where the command could not be confined, and never was there), and last
`{"gone": KILLED_PROCESSES, "left": [PID], "reached": [LIMIT]}`; what is left was killed and does not go, and a limit
that the tree has met is named as `Limits` has it.
The caller's end, in whatever way (its socket closes, or its process is gone), kills the tree at once; so does a folder
of its that holds more than it may. Once the tree is gone its private folder (`remove` in the command) and its control
groups are removed too.
"""

from __future__ import annotations

import ctypes
import fcntl
import math
import os
import select
import time
from _thread import start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    # not even the name is imported for real: that takes longer than starting the interpreter
    from typing import Any

if TYPE_CHECKING or __package__:
    from runner.sandbox import bounds, disk, launcher
    from runner.sandbox.startup import read_json, signal, suppress, write_json
else:
    # as a program it loads no package, which would load what nothing here needs
    import bounds
    import disk
    import launcher
    from startup import read_json, signal, suppress, write_json

PR_SET_CHILD_SUBREAPER = 36
REFUSED = b"\0"
"""What a child reports begins with it when the command could not be confined, rather than not be executed."""

SWEEP_S = 0.005
"""Between two sweeps over a tree that is being killed: its members need a moment to die."""


class Supervisor:
    """One process tree, from its start to the last of its members.

    Args:
        control: Descriptor of the control socket.
    """

    def __init__(self, control: int) -> None:
        self.control = control
        self.child = 0
        self.report = -1
        self.relayed = False
        self.refused = False
        self.status = -1
        self.killed: set[int] = set()
        self.bounds = bounds.Bounds([])
        self.disk: disk.DiskWatch | None = None
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.pending = b""

    def tell(self, **message: object) -> None:
        """Send one JSON line; a caller that is gone does not mind."""
        with suppress(OSError):
            line = write_json(message).encode() + b"\n"
            while line:
                line = line[os.write(self.control, line) :]

    def run(self) -> int:
        """Start what the first line asks for, watch it, and return when nothing of it is left."""
        line = self._first_line()
        if line is None:
            return 1
        config = read_json(line.decode())
        caller = self._caller(config["caller"])
        if caller is None:
            return 1
        self._prctl(PR_SET_CHILD_SUBREAPER, 1)
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # inherited from the thread that started us; a blocked SIGCHLD would never wake the watch below
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self.relayed = config["relayed"]
        self.bounds = bounds.Bounds(config["groups"])
        failure = self._start(config)
        left: list[int] = []
        reached: list[str] = []
        if failure is not None:
            self.tell(failed=failure, refused=self.refused)
        else:
            self.tell(started=self.child)
            if config["disk"] is not None:
                self._watch_disk(config["disk"], wake_write)
            if self.bounds.late:
                start_new_thread(self.bounds.follow, (self._tree,))
            self._watch(caller, wake_read)
            left = self._kill_tree(config["give_up"])
            reached = self.bounds.reached()
            if self.disk is not None and self.disk.exceeded:
                reached.append("disk_bytes")
        self.bounds.remove()
        if config["remove"] is not None:
            # here and not in the caller, which may be the one that was killed
            disk.remove(config["remove"])
        if failure is None:
            self.tell(gone=len(self.killed), left=left, reached=reached)
        return 0

    def _watch_disk(self, config: dict[str, Any], wake: int) -> None:
        """Have a thread look after the disk: it may take long, and neither the tree's end nor the caller may wait."""
        self.disk = disk.DiskWatch(config["folders"], config["max_bytes"], self._tree)
        start_new_thread(self.disk.run, (wake,))

    def _tree(self) -> list[int]:
        return descendants(os.getpid())

    def _first_line(self) -> bytes | None:
        while b"\n" not in self.pending:
            data = os.read(self.control, 65536)
            if not data:
                return None
            self.pending += data
        line, self.pending = self.pending.split(b"\n", 1)
        return line

    def _caller(self, pid: int) -> int | None:
        """Open the caller's process, or say that it is already gone."""
        try:
            caller = os.pidfd_open(pid)
        except OSError:
            return None
        # between our start and the line above the caller may have died and its number been given away
        if os.getppid() != pid:
            os.close(caller)
            return None
        return caller

    def _prctl(self, option: int, value: int) -> None:
        if self.libc.prctl(option, value, 0, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"prctl({option}): {os.strerror(number)}")

    def _start(self, config: dict[str, Any]) -> str | None:
        """Fork and execute the command; return what went wrong, if anything did."""
        report_read, report_write = os.pipe2(os.O_CLOEXEC)
        status_write = -1
        if self.relayed:
            self.status, status_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            config["fds"] = {**config["fds"], config["status"]: status_write}
        try:
            self.bounds.make()
        except OSError as error:
            self.refused = True
            return f"cannot make a control group: {error}"
        self.child = os.fork()
        if self.child == 0:
            self.report = report_write
            try:
                self._become(config)
            except launcher.StepError as error:
                os.write(self.report, REFUSED + str(error).encode(errors="backslashreplace")[:4096])
            except BaseException as error:  # noqa: BLE001 - the only way out of a forked child is to report and exit
                os.write(self.report, f"{type(error).__name__}: {error}".encode(errors="backslashreplace")[:4096])
            finally:
                os._exit(127)
        os.close(report_write)
        with os.fdopen(report_read, "rb") as report:
            said = report.read()
        self.refused = said.startswith(REFUSED)
        failure = said.removeprefix(REFUSED).decode("utf-8", "replace")
        # what the child was given belongs to it alone; a copy here would keep its channels open after its death
        for source in set(config["fds"].values()):
            with suppress(OSError):
                os.close(source)
        if failure:
            os.waitpid(self.child, 0)
            return failure
        return None

    def _become(self, config: dict[str, Any]) -> None:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        # two steps, since a source may be another one's target
        floor = 1 + max([2, *map(int, config["fds"])])
        parked = {int(target): _parked(source, floor) for target, source in config["fds"].items()}
        self.report = _parked(self.report, floor)
        kept = {0, 1, 2, self.report, *parked.values()}
        for descriptor in _open_descriptors() - kept:
            with suppress(OSError):
                os.close(descriptor)
        for target, source in parked.items():
            os.dup2(source, target, inheritable=True)
        try:
            # while it is still the caller's user
            self.bounds.enter()
        except OSError as error:
            raise launcher.StepError(f"cannot enter a control group: {error}") from error
        launcher.carry_out(config["steps"])
        os.umask(config["umask"])
        os.chdir(config["cwd"])
        os.execve(config["argv"][0], config["argv"], config["env"])  # noqa: S606 - no shell is wanted

    def _watch(self, caller: int, wake: int) -> None:
        """Return when the child has ended, its grace is over, or the caller is gone."""
        poller = select.poll()
        for descriptor in (self.control, caller, wake):
            poller.register(descriptor, select.POLLIN)
        deadline: float | None = None
        self._reap()
        while self.child:
            # before the first wait too: an end that was asked for at once came along with the command
            while b"\n" in self.pending:
                line, self.pending = self.pending.split(b"\n", 1)
                message = read_json(line.decode())
                if "signal" in message:
                    # not reaped yet, so that its number is still its own
                    with suppress(PermissionError):
                        os.kill(self._command() or self.child, message["signal"])
                    continue
                grace = float(message["end"])
                if grace <= 0:
                    self._signal_group(signal.SIGKILL)
                elif deadline is None:
                    # once: a second one would interrupt what the first has set off
                    self._signal_group(signal.SIGTERM)
                # asking again may shorten the grace, never prolong it
                deadline = min(deadline or math.inf, time.monotonic() + grace)
            if deadline is not None and time.monotonic() >= deadline:
                return
            left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            ready = {descriptor for descriptor, _ in poller.poll(left)}
            if wake in ready:
                with suppress(BlockingIOError):
                    os.read(wake, 4096)
            self._reap()
            if caller in ready or (self.disk is not None and self.disk.exceeded):
                return
            if self.control in ready:
                data = self._read_control()
                if not data:
                    return
                self.pending += data

    def _read_control(self) -> bytes:
        try:
            return os.read(self.control, 65536)
        except OSError:
            return b""

    def _signal_group(self, number: int) -> None:
        if not self.child:
            return
        # what relays would end at once, and take the command with it before it can do anything about it
        leader = self._leader() if number != signal.SIGKILL else 0
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader or self.child, number)

    def _leader(self) -> int:
        """The first process inside of the namespaces, which leads their session; 0 where there are none."""
        inside = _children(self.child) if self.relayed else []
        return inside[0] if inside else 0

    def _command(self) -> int:
        """The command inside of the namespaces; 0 where there are none, or it has not begun."""
        leader = self._leader()
        inside = _children(leader) if leader else []
        return inside[0] if inside else 0

    def _reap(self) -> bool:
        """Collect every ended process of the tree, tell when the child itself is among them; return if any is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.child:
                self.child = 0
                if self.relayed:
                    self._tell_relayed(status)
                else:
                    self.tell(exited=status)

    def _tell_relayed(self, status: int) -> None:
        """Tell how the command ended, from the exit code that stands for it."""
        try:
            said = os.read(self.status, 65536)
        except BlockingIOError:
            said = b""
        if not os.WIFEXITED(status):
            self.tell(exited=status)
        elif b"exit-code" not in said:
            # it is said for a command that began, and for no other
            self.tell(exited=status, refused=True)
        else:
            code = os.WEXITSTATUS(status)
            # as a shell has it: the number of the signal that ended the command
            self.tell(exited=code - 128 if 128 < code <= 128 + signal.NSIG else status)

    def _kill_tree(self, give_up_s: float) -> list[int]:
        """Kill whatever is left, again and again until nothing is: a member may fork while it is being found.

        A killed process that is still there after `give_up_s` hangs in the kernel, and nobody can do more; return
        those. Whether something is left is for the kernel to say: every orphan of the tree becomes our child, while a
        list of processes can miss one that forks and ends as the list is read.
        """
        deadline = time.monotonic() + give_up_s
        while self._reap() and time.monotonic() < deadline:
            for pid in descendants(os.getpid()):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                    self.killed.add(pid)
            if self._reap():
                time.sleep(SWEEP_S)
        return descendants(os.getpid()) if self._reap() else []


def descendants(root: int) -> list[int]:
    """List the processes below `root`, zombies aside, from the process table."""
    parents: dict[int, list[int]] = {}
    dead: set[int] = set()
    for name in os.listdir("/proc"):  # noqa: PTH208 - this runs many times a second while a tree is killed
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123 - as above
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(name))
        if fields[0] in (b"Z", b"X"):
            dead.add(int(name))
    found: list[int] = []
    open_ends = [root]
    while open_ends:
        for pid in parents.get(open_ends.pop(), ()):
            found.append(pid)
            open_ends.append(pid)
    return [pid for pid in found if pid not in dead]


def _children(pid: int) -> list[int]:
    """List the children of a process, oldest first."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as children:  # noqa: PTH123 - as above
            return [int(child) for child in children.read().split()]
    except OSError:
        return []


def _parked(descriptor: int, floor: int) -> int:
    """Duplicate a descriptor to the first free number from `floor` on; not inherited by programs."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, floor)


def _open_descriptors() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}  # noqa: PTH208 - names are all that is wanted
