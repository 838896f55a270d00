"""What comes of each attack at each level: one row for each module of `tests/hostile/attacks`.

`can`: it managed. `cannot`: nothing refused it, and nothing came of it. Everything else is the error, or the signal,
with which it was kept from that. `ENOENT` and `ESRCH`: what it is after is not there. Before a slash stands what comes
of it where the caller is root, behind it where the caller is an ordinary user. A star: or what `UNLESS` says. The
network is open.
"""

from __future__ import annotations

from typing import Final, Literal

from runner.sandbox.landlock import SCOPE_VERSION
from runner.sandbox.policy import Level
from tests.confined import Caller

Column = Literal["bare", Level]
"""A level, or `bare`: started without a runner. There each attack works that `off` allows, and those of `OFF_STOPS`."""

TABLE: Final = """
attack                                       off           landlock         namespaces

# the caller's process
read_the_callers_environment                 can           ENOENT/EACCES    ENOENT
read_an_inherited_environment                cannot        cannot           cannot
read_the_callers_command_line                can           ENOENT/can       ENOENT
list_processes                               can           cannot/can       cannot
read_the_callers_memory                      can*          ENOENT/EACCES    ENOENT
write_the_callers_memory                     can*          ENOENT/EACCES    ENOENT
copy_the_callers_memory                      can*          EPERM            EPERM
overwrite_the_callers_memory                 can*          EPERM            EPERM
see_where_the_callers_memory_is              can           ENOENT/EACCES    ENOENT
trace_the_caller                             can*          EPERM            EPERM
change_the_process_above                     can           ENOENT/EACCES    can
compare_the_caller                           can           EPERM            EPERM
take_a_descriptor_of_the_caller              can*          EPERM            ESRCH
open_a_descriptor_of_the_caller              can           ENOENT/EACCES    ENOENT
use_inherited_descriptors                    cannot        cannot           cannot
read_through_the_callers_root                can           ENOENT/EACCES    ENOENT
read_through_the_callers_folder              can           ENOENT/EACCES    ENOENT
read_through_the_root_of_its_parent          can           ENOENT/EACCES    ENOENT

# signals, limits and priorities
signal_the_caller                            can           EPERM            ESRCH
signal_the_callers_group                     can           EPERM            ESRCH
signal_by_a_process_descriptor               can           EPERM            ESRCH
signal_by_an_owned_descriptor                can           cannot           ESRCH
signal_its_supervisor                        can           EPERM            ESRCH
limit_the_caller                             can           EPERM            ESRCH
slow_the_caller_down                         can           EPERM            ESRCH
slow_the_callers_group_down                  can           EPERM            ESRCH
make_the_caller_wait_for_processors          can           EPERM            ESRCH
make_the_caller_wait_for_disks               can           EPERM            ESRCH
pin_the_caller_to_one_processor              can           EPERM/can        ESRCH
have_the_caller_killed_first                 can           ENOENT/EACCES    ENOENT

# staying
outlive_its_worker                           cannot        cannot           cannot
outlive_its_supervisor                       can           EPERM            ESRCH
put_itself_above                             cannot        cannot           cannot
keep_its_folder_from_being_removed           cannot        cannot           cannot
dump_core                                    cannot        cannot           cannot

# the caller's secrets
read_ssh_keys                                can           EACCES           ENOENT
read_cloud_credentials                       can           EACCES           ENOENT
read_passwords_of_package_indexes            can           EACCES           ENOENT
read_the_callers_data                        can           EACCES           ENOENT
read_another_venv                            can           EACCES           ENOENT
read_another_workers_folder                  can           EACCES           ENOENT
list_the_callers_home                        can           EACCES           ENOENT
watch_the_callers_home                       can           ENOSYS           ENOENT
mark_a_file_for_notification                 can           EPERM            EPERM
read_attributes                              can*          ENOTSUP          ENOENT
see_the_size_of_a_file                       can           can              ENOENT
see_where_a_link_leads                       can           can              ENOENT

# the caller's files, changed
plant_a_file                                 can           EACCES           ENOENT
leave_a_file_for_everybody                   can           EACCES           ENOENT
make_a_folder                                can           EACCES           ENOENT
empty_a_file                                 can           EACCES           ENOENT
rename_a_file                                can           EACCES           ENOENT
delete_a_file                                can           EACCES           ENOENT
change_a_mode                                can           EPERM/can        ENOENT
change_an_owner                              can           EPERM/can        ENOENT
change_times                                 can           EPERM/can        ENOENT
change_attributes                            can*          ENOTSUP          ENOENT
change_flags_of_a_file                       can*          EPERM            ENOENT*
change_the_callers_data                      can           EACCES           ENOENT
change_another_venv                          can           EACCES           ENOENT
hold_a_lease_of_the_cache                    can           EACCES           ENOENT
change_the_cache                             can           EACCES           ENOENT

# what it runs on
change_its_own_packages                      can           EACCES           EACCES/EROFS
add_to_its_own_packages                      can           EACCES           EROFS
replace_its_own_interpreter                  can           EACCES           EROFS
change_the_workers_code                      can           EACCES           EACCES/EROFS
shut_its_own_packages                        can           EPERM/can        EROFS
remount_its_packages_writable                can*          EPERM            EPERM

# links and ways around
read_through_its_own_link                    can           EACCES           ENOENT
climb_above_its_folder                       can           EACCES           ENOENT
link_a_file_into_its_folder                  can           EPERM*/EXDEV     ENOENT
link_its_own_file_outside                    can           EACCES           ENOENT
lead_the_removal_astray                      can           cannot           cannot
open_by_handle                               can/EPERM     EPERM            ENOENT

# the machine
read_the_machines_settings                   can           EACCES           ENOENT
read_password_hashes                         can/EACCES    EACCES           ENOENT
change_programs_of_the_machine               can/EACCES    EACCES           EROFS
change_kernel_settings                       can/EACCES    EACCES           EACCES
leave_its_control_group                      can/EACCES    EACCES           ENOENT
make_a_device_node                           can/EPERM     EACCES           EPERM
open_a_device                                can/EACCES    EACCES           ENOENT
open_a_new_terminal                          can           EACCES           ENOENT
push_input_into_a_terminal                   can*          EPERM            EPERM
change_a_terminals_driver                    can           EPERM            EPERM
read_the_kernels_log                         can*          EPERM            EPERM
unload_a_module                              can*/EPERM*   EPERM            EPERM
load_another_kernel                          can*/EPERM*   EPERM            EPERM
restart_the_machine                          can/EPERM     EPERM            EPERM
swap_to_a_file                               can*/EPERM*   EPERM            EPERM
record_what_all_processes_do                 can*/EPERM*   EPERM            EPERM
rename_the_machine                           can/EPERM     EPERM            EPERM
ask_how_the_clock_is_steered                 can           EPERM            EPERM
use_ports_of_the_machine                     can*/EPERM*   EPERM*           EPERM*
change_segments                              can*          EPERM*           EPERM*

# privileges
become_root                                  can/EPERM     EPERM            EINVAL
become_somebody_else                         can/EPERM     EPERM            EINVAL
gain_root_by_a_set_uid_program               can*/cannot*  cannot*          cannot*
raise_its_limits                             can*/EPERM    EPERM            EPERM
run_a_program_from_memory                    can           can              can
run_a_program_of_its_own                     can           can              can

# namespaces and mounts
make_a_user_namespace                        can*          EPERM            EPERM
start_a_process_in_a_user_namespace          can*          EPERM            EPERM
start_a_process_by_clone3                    can*          ENOSYS           ENOSYS
make_other_namespaces                        can*          EPERM            EPERM
make_a_time_namespace                        can*          EPERM            EPERM
enter_the_callers_namespaces                 can/EPERM     ENOENT/EACCES    ENOENT
enter_the_callers_namespaces_by_its_process  can/EPERM     EPERM            ESRCH
mount_a_file_system                          can*          EPERM            EPERM
mount_by_the_newer_interface                 can*          EPERM            EPERM
copy_a_mount                                 can*          EPERM            EPERM
unmount_what_hides                           can*          EPERM            EPERM
change_the_root                              can*          EPERM            EPERM
exchange_the_root                            can*          EPERM            EPERM

# corners of the kernel
run_a_program_in_the_kernel                  can*          EPERM            EPERM
count_what_processors_do                     can*          EPERM            EPERM
use_io_uring                                 can*          EPERM            EPERM
handle_page_faults                           can*          EPERM            EPERM
add_to_a_keyring                             can           EPERM            EPERM
look_into_the_users_keyring                  can           EPERM            EPERM
ask_for_a_key                                can           EPERM            EPERM
call_as_a_32_bit_program                     can*          EPERM*           EPERM*
call_as_an_x32_program                       can*          EPERM*           EPERM*

# sockets
connect_to_a_socket_file                     can           EAFNOSUPPORT     ENOENT
send_to_a_socket_file                        can           EAFNOSUPPORT     ENOENT
lead_a_socket_pair_elsewhere                 can           EPROTONOSUPPORT  ENOENT
connect_to_an_abstract_socket                can           EAFNOSUPPORT     EPERM
connect_to_loopback                          can           can              can
reach_the_hypervisor                         can*          EAFNOSUPPORT     EAFNOSUPPORT
listen_to_the_wire                           can/EPERM     EAFNOSUPPORT     EAFNOSUPPORT
forge_packets                                can/EPERM     EPERM            EPERM
use_the_kernels_ciphers                      can*          EAFNOSUPPORT     EAFNOSUPPORT

# memory and messages between processes
read_shared_memory                           can           ENOENT/EACCES    ENOENT
leave_shared_memory                          can           cannot/EACCES    cannot
read_a_segment_of_the_caller                 can           ENOSYS           ENOENT
leave_a_segment                              can           ENOSYS           cannot
read_a_message_of_the_caller                 can           ENOSYS           ENOENT
make_a_semaphore                             can           ENOSYS           cannot
read_a_posix_queue_of_the_caller             can           ENOSYS           ENOENT
leave_a_posix_queue                          can           ENOSYS           cannot
"""

OFF_STOPS: Final = frozenset(
    {
        "read_an_inherited_environment",
        "use_inherited_descriptors",
        "outlive_its_worker",
        "put_itself_above",
        "keep_its_folder_from_being_removed",
        "dump_core",
        "gain_root_by_a_set_uid_program",
    }
)
"""What works without a runner, and at no level."""

UNLESS: Final[dict[str, frozenset[str]]] = {
    "read_the_callers_memory": frozenset({"EACCES"}),
    "write_the_callers_memory": frozenset({"EACCES"}),
    "copy_the_callers_memory": frozenset({"EPERM"}),
    "overwrite_the_callers_memory": frozenset({"EPERM"}),
    "trace_the_caller": frozenset({"EPERM"}),
    "take_a_descriptor_of_the_caller": frozenset({"EPERM"}),
    "read_attributes": frozenset({"ENOTSUP"}),
    "change_attributes": frozenset({"ENOTSUP"}),
    "change_flags_of_a_file": frozenset({"absent"}),
    "remount_its_packages_writable": frozenset({"EPERM", "EACCES"}),
    "link_a_file_into_its_folder": frozenset({"EXDEV"}),
    "push_input_into_a_terminal": frozenset({"EIO"}),
    "read_the_kernels_log": frozenset({"EPERM"}),
    "unload_a_module": frozenset({"absent"}),
    "load_another_kernel": frozenset({"absent"}),
    "swap_to_a_file": frozenset({"absent"}),
    "record_what_all_processes_do": frozenset({"absent"}),
    "use_ports_of_the_machine": frozenset({"ENOSYS", "absent"}),
    "change_segments": frozenset({"ENOSYS", "absent"}),
    "gain_root_by_a_set_uid_program": frozenset({"absent"}),
    "raise_its_limits": frozenset({"EPERM"}),
    "make_a_user_namespace": frozenset({"EPERM", "EACCES"}),
    "start_a_process_in_a_user_namespace": frozenset({"EPERM", "EACCES"}),
    "start_a_process_by_clone3": frozenset({"EPERM", "EACCES"}),
    "make_other_namespaces": frozenset({"EPERM", "EACCES"}),
    "make_a_time_namespace": frozenset({"EPERM", "EACCES"}),
    "mount_a_file_system": frozenset({"EPERM", "EACCES"}),
    "mount_by_the_newer_interface": frozenset({"EPERM", "EACCES"}),
    "copy_a_mount": frozenset({"EPERM", "EACCES"}),
    "unmount_what_hides": frozenset({"EPERM", "EACCES"}),
    "change_the_root": frozenset({"EPERM", "EACCES"}),
    "exchange_the_root": frozenset({"EPERM", "EACCES"}),
    "run_a_program_in_the_kernel": frozenset({"EPERM"}),
    "count_what_processors_do": frozenset({"EACCES"}),
    "use_io_uring": frozenset({"EPERM"}),
    "handle_page_faults": frozenset({"ENOSYS"}),
    "call_as_a_32_bit_program": frozenset({"SIGSEGV", "absent"}),
    "call_as_an_x32_program": frozenset({"ENOSYS", "absent"}),
    "reach_the_hypervisor": frozenset({"EAFNOSUPPORT"}),
    "use_the_kernels_ciphers": frozenset({"EAFNOSUPPORT"}),
}
"""What comes of an attack where the kernel is built or set so that it does not offer what is attacked: `absent` on
machines that never have it; the errors are those of Yama, of restricted user namespaces, and of parts left out."""

BEFORE_SCOPES: Final = """
attack                          landlock    namespaces
signal_the_caller               EPERM/can   ESRCH
signal_the_callers_group        EPERM/can   ESRCH
signal_by_a_process_descriptor  EPERM/can   ESRCH
signal_by_an_owned_descriptor   cannot/can  ESRCH
signal_its_supervisor           EPERM/can   ESRCH
outlive_its_supervisor          EPERM/can   ESRCH
connect_to_an_abstract_socket   EAFNOSUPPORT  can
"""
"""Rows that are different before Linux 6.12, where Landlock keeps neither signals nor abstract sockets inside."""


def rows(table: str) -> dict[str, dict[str, str]]:
    """Read a table: attack → column → cell.

    Raises:
        ValueError: a row is there twice, or is longer or shorter than the others.
    """
    lines = [line.split() for line in table.splitlines() if line and not line.startswith("#")]
    _, *columns = lines[0]
    found: dict[str, dict[str, str]] = {}
    for attack, *cells in lines[1:]:
        if attack in found:
            raise ValueError(f"{attack} is there twice")
        found[attack] = dict(zip(columns, cells, strict=True))
    return found


ROWS: Final = rows(TABLE)
_OLDER: Final = rows(BEFORE_SCOPES)


def expected(attack: str, column: Column, caller: Caller, landlock: int) -> frozenset[str]:
    """Return what may come of an attack.

    Args:
        attack: Its name.
        column: The level, or `bare`.
        caller: Who starts the program.
        landlock: Version of the kernel's interface.
    """
    row = ROWS[attack]
    if landlock < SCOPE_VERSION:
        row = row | _OLDER.get(attack, {})
    confined = row["off" if column == "bare" else column]
    cell = "can*" if column == "bare" and attack in OFF_STOPS else confined
    root, _, ordinary = cell.partition("/")
    result = ordinary if ordinary and caller == "ordinary" else root
    return frozenset({result.rstrip("*")}) | (UNLESS.get(attack, frozenset()) if result.endswith("*") else frozenset())
