"""What is known of the names a pickle may import: what they can do, and which of them every bundle needs.

A table tells nothing of a name that is not in it, and no bundle is safe for lack of one that is: its own code is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

PROGRAMS: Final = "starts or ends programs"
CODE: Final = "runs code that it is given"
UNPICKLES: Final = "runs code that is hidden in data"
NATIVE: Final = "reaches into native code"
NETWORK: Final = "opens connections"
FILES: Final = "reads or changes files"
CHANGES: Final = "changes what other code relies on"
VARIABLES: Final = "holds the environment variables of whoever packed it, or of whoever loads it"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _table(*groups: tuple[str, str]) -> Mapping[str, str]:
    return MappingProxyType({name: deed for deed, names in groups for name in names.split()})


DEEDS: Final = _table(
    (
        PROGRAMS,
        """
        os.system os.popen os.execl os.execle os.execlp os.execlpe os.execv os.execve os.execvp os.execvpe
        os.spawnl os.spawnle os.spawnlp os.spawnlpe os.spawnv os.spawnve os.spawnvp os.spawnvpe os.posix_spawn
        os.posix_spawnp os.fork os.forkpty os.startfile os.kill os.killpg os.abort os._exit posix.system
        posix.execv posix.execve posix.fork posix.forkpty posix.posix_spawn posix.posix_spawnp posix.kill
        posix.killpg posix.abort posix._exit nt.system nt.execv nt.execve nt.spawnv nt.spawnve nt.startfile
        subprocess _posixsubprocess _winapi pty multiprocessing concurrent.futures.process
        concurrent.futures.ProcessPoolExecutor commands popen2 asyncio.create_subprocess_exec
        asyncio.create_subprocess_shell asyncio.subprocess sys.exit builtins.exit builtins.quit distutils.spawn
        setuptools pexpect sh plumbum fabric paramiko invoke
        """,
    ),
    (
        CODE,
        """
        builtins.eval builtins.exec builtins.compile builtins.execfile builtins.breakpoint builtins.__build_class__
        builtins.reload runpy code codeop timeit profile cProfile pdb bdb trace doctest pydoc imp importlib.reload
        importlib.util importlib.machinery importlib._bootstrap importlib._bootstrap_external
        _frozen_importlib.__import__ _frozen_importlib_external.SourceFileLoader.exec_module zipimport pkgutil site
        test lib2to3 idlelib unittest pip ensurepip venv IPython jinja2 numpy.testing pandas.eval sympy.sympify
        """,
    ),
    (
        UNPICKLES,
        """
        pickle.loads pickle.load pickle.Unpickler pickle._loads pickle._load pickle._Unpickler _pickle.loads
        _pickle.load _pickle.Unpickler marshal.loads marshal.load cloudpickle.loads cloudpickle.load
        cloudpickle.cloudpickle.loads cloudpickle.cloudpickle.load dill joblib.load shelve jsonpickle torch.load
        torch.jit.load numpy.load pandas.read_pickle yaml.load yaml.unsafe_load yaml.full_load yaml.load_all
        yaml.unsafe_load_all
        """,
    ),
    (NATIVE, "ctypes _ctypes cffi _cffi_backend mmap numpy.ctypeslib"),
    (
        NETWORK,
        """
        socket _socket socketserver ssl _ssl http urllib.request urllib3 requests httpx aiohttp ftplib smtplib
        poplib imaplib nntplib telnetlib xmlrpc webbrowser wsgiref asyncio.open_connection asyncio.start_server
        asyncio.open_unix_connection websockets boto3 botocore
        """,
    ),
    (
        FILES,
        """
        builtins.open io.open io.open_code io.FileIO _io.open _io.FileIO codecs.open os.open os.fdopen os.remove
        os.unlink os.rename os.renames os.replace os.rmdir os.removedirs os.mkdir os.makedirs os.mkfifo os.mknod
        os.chmod os.chown os.symlink os.link os.truncate os.walk os.scandir os.listdir os.chdir os.chroot
        posix.open posix.remove posix.unlink posix.rename posix.replace posix.rmdir posix.mkdir posix.chmod
        posix.symlink posix.link posix.truncate posix.listdir posix.scandir shutil tempfile fileinput glob
        linecache zipfile tarfile sqlite3 _sqlite3 dbm mailbox pathlib.Path.write_text pathlib.Path.write_bytes
        pathlib.Path.read_text pathlib.Path.read_bytes pathlib.Path.open pathlib.Path.unlink pathlib.Path.touch
        pathlib.Path.mkdir pathlib.Path.rmdir pathlib.Path.rename pathlib.Path.replace pathlib.Path.chmod
        pathlib.Path.symlink_to pathlib.Path.hardlink_to netrc logging.FileHandler logging.config logging.handlers
        numpy.save numpy.savez numpy.memmap numpy.fromfile numpy.genfromtxt numpy.loadtxt
        """,
    ),
    (
        CHANGES,
        """
        builtins.setattr builtins.delattr builtins.globals builtins.locals builtins.input operator.setitem
        operator.delitem operator.iconcat _operator.setitem _operator.delitem sys.settrace sys.setprofile
        sys.addaudithook sys.modules sys.meta_path sys.path sys.path_hooks sys._getframe sys.setrecursionlimit
        sys.excepthook sys.displayhook sys.__dict__ builtins.__dict__ gc atexit signal _signal _thread threading
        faulthandler resource os.putenv os.unsetenv os.setuid os.setgid os.dup2 copyreg.pickle
        copyreg.add_extension copyreg.dispatch_table inspect.currentframe warnings.catch_warnings
        """,
    ),
    (VARIABLES, "os._Environ os.environ os.environb os.getenv os.getenvb posix.environ"),
)
"""Names that can do harm, each with what it can do; a module's name stands for all that is in it."""

INDIRECT: Final = _words(
    """
    builtins.map builtins.filter builtins.sorted builtins.min builtins.max builtins.iter functools.reduce
    _functools.reduce itertools.starmap itertools.accumulate itertools.takewhile itertools.dropwhile
    itertools.filterfalse itertools.groupby builtins.type builtins.super types.new_class types.prepare_class
    weakref.finalize contextlib.ExitStack contextlib.contextmanager unittest.mock.patch operator.call
    _operator.call
    """
)
"""Names that call what they are handed, or make classes, so that what happens is not told by the name."""

CLOUDPICKLE: Final = frozenset({"cloudpickle", "cloudpickle.cloudpickle", "cloudpickle.cloudpickle_fast"})

MAKES_FUNCTION: Final = frozenset(
    {*(f"{module}._make_function" for module in CLOUDPICKLE), "types.FunctionType", "types.LambdaType"}
)
MAKES_CLASS: Final = frozenset(
    f"{module}.{name}" for module in CLOUDPICKLE for name in ("_make_skeleton_class", "_make_skeleton_enum")
)
MAKES_MODULE: Final = frozenset(f"{module}.dynamic_subimport" for module in CLOUDPICKLE)
FILLS: Final = frozenset(
    f"{module}.{name}" for module in CLOUDPICKLE for name in ("_class_setstate", "_function_setstate", "_cell_set")
)
"""Fill what they are handed first; what is a bundle's own is meant, nothing else."""

_RECONSTRUCTORS: Final = _words(
    """
    _builtin_type subimport _make_cell _make_empty_cell _get_cell_contents _make_typevar _make_dict_keys
    _make_dict_values _make_dict_items _gen_ellipsis _gen_not_implemented instance _file_reconstructor
    _get_dataclass_field_type_sentinel
    """
)

_DATA: Final = _words(
    """
    builtins.bool builtins.bytearray builtins.bytes builtins.classmethod builtins.complex builtins.dict
    builtins.float builtins.frozenset builtins.int builtins.list builtins.object builtins.property builtins.range
    builtins.reversed builtins.set builtins.slice builtins.staticmethod builtins.str builtins.tuple
    builtins.enumerate builtins.zip builtins.getattr types.CodeType types.CellType types.ModuleType
    types.MethodType types.MappingProxyType types.SimpleNamespace types.GenericAlias types.UnionType
    functools.partial functools.partialmethod functools.cached_property _operator.getitem operator.getitem
    operator.or_ _operator.or_ typing.TypeVar typing.ParamSpec typing.NewType typing.ForwardRef weakref.WeakSet
    weakref.WeakValueDictionary weakref.WeakKeyDictionary copyreg._reconstructor copyreg.__newobj__
    copyreg.__newobj_ex__ re.compile re._compile logging.getLogger collections.OrderedDict collections.defaultdict
    collections.deque collections.Counter collections.ChainMap datetime.date datetime.time datetime.datetime
    datetime.timedelta datetime.timezone decimal.Decimal fractions.Fraction uuid.UUID zoneinfo.ZoneInfo
    zoneinfo.ZoneInfo._unpickle array._array_reconstructor array.array itertools.count itertools.chain
    itertools.cycle itertools.repeat random.Random abc.ABCMeta enum.EnumType dataclasses._create_fn
    dataclasses.Field dataclasses._DataclassParams string.Template operator.attrgetter operator.itemgetter
    operator.methodcaller _operator.attrgetter _operator.itemgetter pathlib.PurePosixPath pathlib.PosixPath
    pathlib.PureWindowsPath pathlib.WindowsPath pathlib.Path pathlib._local.PosixPath pathlib._local.PurePosixPath
    pathlib._local.Path numpy.dtype numpy.ndarray numpy.core.multiarray._reconstruct
    numpy._core.multiarray._reconstruct numpy.core.multiarray.scalar numpy._core.multiarray.scalar
    numpy.core.numeric._frombuffer numpy._core.numeric._frombuffer _frozen_importlib.ModuleSpec
    _frozen_importlib_external.SourceFileLoader
    """
)

EXPECTED: Final = frozenset(
    {
        *MAKES_FUNCTION,
        *MAKES_CLASS,
        *MAKES_MODULE,
        *FILLS,
        *_DATA,
        *(f"{module}.{name}" for module in CLOUDPICKLE for name in _RECONSTRUCTORS),
    }
)
"""Calls that pickles of classes and plain data are made of: none of them does more than make or look up something."""

_HOLDING: Final = _words(
    """
    types.CodeType types.CellType types.MethodType types.GenericAlias types.UnionType functools.partial
    functools.partialmethod _operator.getitem operator.getitem operator.or_ _operator.or_ typing.TypeVar
    typing.NewType copyreg._reconstructor copyreg.__newobj__ builtins.dict builtins.frozenset builtins.getattr
    builtins.list builtins.set builtins.tuple builtins.staticmethod builtins.classmethod builtins.property
    """
)

HOLDERS: Final = _HOLDING | {
    f"{module}.{name}" for module in CLOUDPICKLE for name in ("_make_cell", "_make_typevar", "subimport")
}
"""Those of them that only hold what they are handed, so that it may be anything."""

OR: Final = frozenset({"operator.or_", "_operator.or_"})
REDUCE: Final = frozenset({"functools.reduce", "_functools.reduce"})
"""What a union of types is pickled as."""

NAMES_IN_CODE: Final = frozenset({"eval", "exec", "compile", "__import__", "breakpoint"})
"""Built-in functions that are worth telling when a bundle's code names them."""

_TELLING: Final = _words(
    """
    subprocess multiprocessing pty ctypes cffi socket socketserver urllib3 requests httpx aiohttp shutil sqlite3 marshal
    dill runpy
    """
)
"""Modules whose names mean nothing else in code."""

HARMLESS_DUNDERS: Final = _words(
    "__name__ __qualname__ __doc__ __module__ __version__ __file__ __annotations__ __get__ __set__ __init__ __new__"
)


@lru_cache(maxsize=10_000)
def deed(module: str, name: str) -> str:
    """Return what a name can do, empty when it is not known to do harm.

    A name may be reached through another module (`logging` and `os.system`), so its dotted ends are looked up as well.
    """
    path = f"{module}.{name}" if name else module
    found = _deed(path)
    parts = name.split(".")
    for begin in range(len(parts) - 1):
        found = found or _deed(".".join(parts[begin:]))
    return found


def _deed(path: str) -> str:
    while path:
        if path in DEEDS:
            return DEEDS[path]
        path = path.rpartition(".")[0]
    return ""


def named_in_code(names: Iterable[str]) -> dict[str, str]:
    """Return those of the names that a bundle's code uses which can do harm, each with what."""
    found = {}
    for name in names:
        if name in NAMES_IN_CODE:
            found[name] = CODE
        elif name in _TELLING:
            found[name] = DEEDS[name]
    return found
