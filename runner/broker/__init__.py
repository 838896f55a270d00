"""Who may have which headers: the caller's credential sources, asked per model request, and a trail of every answer.

`docs/credentials.md` has the policy in words.
"""

from runner.broker.audit import AuditCount, AuditEntry, Verdict
from runner.broker.binding import AuthValue, Binding
from runner.broker.broker import Broker
from runner.broker.clerk import Clerk
from runner.broker.desk import HeaderDesk
from runner.broker.scope import CallScope

__all__ = ["AuditCount", "AuditEntry", "AuthValue", "Binding", "Broker", "CallScope", "Clerk", "HeaderDesk", "Verdict"]
