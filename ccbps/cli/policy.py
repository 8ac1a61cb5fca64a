"""``ccbps policy``: check, explain and compare policies of access control."""

from __future__ import annotations

import json
from argparse import Namespace
from decimal import Decimal
from typing import Any, Final

from ccbps.access.policy import ACTIONS, ON_FILTERS, Policy
from ccbps.cli.command import JSON, Command, Option, answer
from ccbps.cli.inputs import read_file, read_text
from ccbps.errors import ParameterError

POLICY: Final = Option("policy FILE", "the policy, in TOML")


def _policy(_: Namespace) -> int:
    r"""Check, explain and compare policies of access control.

    A policy is a TOML file that says which roles may advertise, publish, subscribe to and receive
    which events. An authority puts it into force; brokers get it without its filters.

    Example:
        ccbps policy check ward.toml
        ccbps policy explain ward.toml ann receive '{"ward": "A", "age": 7}'
        ccbps policy explain ward.toml ann subscribe "ward = 'A' AND age > 60"
        ccbps policy diff ward.toml ward_new.toml
    """
    raise NotImplementedError("the parser demands a command")


def _check(arguments: Namespace) -> int:
    r"""Read a policy, and list what a reviewer should look at.

    These are grants and rules without effect, roles without users or grants, and rules that leave
    nothing of a role's grants. The exit status is 1 if there is anything.

    Example:
        ccbps policy check ward.toml
    """
    policy = Policy.from_toml(read_file(arguments.policy))
    problems = policy.problems()
    summary = (
        f"policy {policy.version}: {len(policy.roles)} roles, {len(policy.grants)} grants, "
        f"{len(policy.rules)} rules"
    )
    answer(
        arguments,
        "\n".join([summary, *(problems or ["nothing to remark"])]),
        version=policy.version,
        problems=problems,
    )
    return 1 if problems else 0


def _explain(arguments: Namespace) -> int:
    r"""Say whether a user may take an action, and why.

    What is published or received is an event, as JSON. What is subscribed to or advertised is a
    predicate: the user may, if a grant covers all events that it matches. The exit status is 1 if
    the user may not.

    Example:
        ccbps policy explain ward.toml ann receive '{"ward": "A", "age": 7}'
    """
    policy = Policy.from_toml(read_file(arguments.policy))
    text = read_text(arguments.content)
    content = text if arguments.action in ON_FILTERS else _event(text)
    decision = policy.decide(arguments.user, arguments.action, content)
    roles = policy.roles_of(arguments.user)
    allowed = policy.filter(roles, arguments.action)
    lines = [
        f"{'allowed' if decision.allowed else 'refused'}: {decision.reason}",
        f"roles of {arguments.user}: {', '.join(roles) or 'none'}",
        f"filter to {arguments.action}: {'nothing' if allowed is None else allowed.text}",
    ]
    answer(
        arguments,
        "\n".join(lines),
        allowed=decision.allowed,
        reason=decision.reason,
        version=decision.version,
        roles=roles,
        filter=None if allowed is None else allowed.text,
    )
    return 0 if decision.allowed else 1


def _event(text: str) -> dict[str, Any]:
    try:
        event = json.loads(text, parse_float=Decimal)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise ParameterError("the event must be a JSON object, such as '{\"age\": 7}'")
    return event


def _diff(arguments: Namespace) -> int:
    r"""Compare two policies by what they allow, not by how they are written.

    A filter is wider, narrower, different, new or gone, for each role and action; a filter that is
    written in another way and allows the same is no difference. The exit status is 1 if there is a
    difference.

    Example:
        ccbps policy diff ward.toml ward_new.toml
    """
    old, new = (Policy.from_toml(read_file(path)) for path in (arguments.policy, arguments.newer))
    changes = old.changes(new)
    lines = [f"policy {old.version} -> {new.version}"]
    for one in changes:
        before, after = one.before or "nothing", one.after or "nothing"
        lines.append(f"{one.role} {one.action}: {one.kind}: {before} -> {after}")
    users: list[dict[str, Any]] = []
    for role in sorted({*old.roles, *new.roles}):
        held, holds = (
            {user for user in one.roles.get(role, ()) if user not in one.revoked}
            for one in (old, new)
        )
        for sign, names in (("+", holds - held), ("-", held - holds)):
            lines += [f"{role} {sign}{name}" for name in sorted(names)]
            users += [{"role": role, "change": sign, "user": name} for name in sorted(names)]
    if len(lines) == 1:
        lines.append("no difference")
    listed = [
        {
            "role": one.role,
            "action": one.action,
            "kind": one.kind,
            "before": one.before,
            "after": one.after,
        }
        for one in changes
    ]
    answer(arguments, "\n".join(lines), filters=listed, users=users)
    return 1 if changes or users else 0


POLICIES: Final = Command(
    "policy",
    _policy,
    kinds=(
        Command("check", _check, (POLICY, JSON)),
        Command(
            "explain",
            _explain,
            (
                POLICY,
                Option("user NAME", "name of the user"),
                Option("action ACTION", ", ".join(ACTIONS), choices=ACTIONS),
                Option("content TEXT", "the event as JSON, or the predicate"),
                JSON,
            ),
        ),
        Command("diff", _diff, (POLICY, Option("newer FILE", "the newer policy"), JSON)),
    ),
)
