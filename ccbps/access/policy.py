"""Policies: which roles may advertise, publish, subscribe to and receive which events.

A policy has a version. Users have roles, and grants give roles actions on content: each grant has a
filter, a predicate over the attributes of events. Rules of owners and managers deny, and a denial
overrides every grant. For roles R and an action a there is one predicate, the *filter* of R and a::

    (grant 1 OR grant 2 OR ...) AND NOT (rule 1) AND NOT (rule 2) ...

over the grants of R and the rules that concern R. Each decision is about this predicate:

- an event may be published or received if the filter is TRUE for it;
- a subscription or an advertisement may be made if it implies the filter, that is, if the filter is
  TRUE for all events that it matches.

A rule that is neither TRUE nor FALSE for an event, because of a NULL, denies it.

Rules name attributes and roles, never users, so that publishers and subscribers need not know one
another. A user that is revoked has no role.

Leak: whoever holds a policy reads users, roles and filters. Brokers that may not read the filters
get a `ccbps.access.notice.Notice`, with names in place of filters.
Source: [Survey] sections 5.1.1 to 5.1.4 (roles: Bacon et al.; rules: Pallickara et al.).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from itertools import product
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

import msgspec
from msgspec import Meta

from ccbps.arrays import Bools
from ccbps.checks import Printable, choice, instance
from ccbps.errors import DecodeError, ParameterError, PredicateError, UnsupportedPredicateError
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.written import schema_from_text
from ccbps.records import Message, Number, Record
from ccbps.wire import Kind

Action: TypeAlias = Literal["advertise", "publish", "subscribe", "receive"]
ACTIONS: Final[tuple[Action, ...]] = ("advertise", "publish", "subscribe", "receive")
ON_FILTERS: Final = ("advertise", "subscribe")
"""Actions on a predicate; the others are on an event."""
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]
Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1 << 16)]
Rate: TypeAlias = Annotated[float, Meta(gt=0)]
Roles: TypeAlias = tuple[str, ...]
"""Names of roles, sorted, each once."""


class Grant(Record, frozen=True):
    """Permission for a role.

    Attributes:
        role: name of the role.
        actions: actions that it may take.
        filter: predicate of the events that the actions are allowed on. A subscription must imply
            it.
        rate: events a second that a user may publish or receive; None for any number.
        burst: events at once; None for as many as in one second.
    """

    role: Name
    actions: Annotated[tuple[Action, ...], Meta(min_length=1)]
    filter: Text = "TRUE"
    rate: Rate | None = None
    burst: Rate | None = None


class Rule(Record, frozen=True):
    """Denial by an owner of data or by a manager, which overrides grants.

    Attributes:
        name: name of the rule, for explanations.
        by: "owner" or "manager".
        deny: predicate of the events that are denied.
        actions: actions that are denied.
        roles: roles that are denied; empty for all.
    """

    name: Name
    by: Literal["owner", "manager"]
    deny: Text
    actions: tuple[Action, ...] = ACTIONS
    roles: tuple[Name, ...] = ()


class _Content(Message, frozen=True):
    """A policy in bytes."""

    front: ClassVar[bytes] = bytes([Kind.POLICY, 1])
    what: ClassVar[str] = "a policy"
    schema: str
    version: Number
    roles: Mapping[Name, tuple[Name, ...]]
    grants: tuple[Grant, ...]
    rules: tuple[Rule, ...]
    revoked: tuple[Name, ...]
    tokens: tuple[Name, ...]


class _GrantTable(msgspec.Struct, forbid_unknown_fields=True):
    role: Name
    actions: Annotated[list[Action], Meta(min_length=1)]
    filter: Text = "TRUE"
    rate: Rate | None = None
    burst: Rate | None = None


class _RuleTable(msgspec.Struct, forbid_unknown_fields=True):
    name: Name
    by: Literal["owner", "manager"]
    deny: Text
    actions: list[Action] = msgspec.field(default_factory=lambda: [*ACTIONS])
    roles: list[Name] = msgspec.field(default_factory=list)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """Policy in TOML, whose tables have names in place of positions."""

    schema: str
    version: Number
    roles: dict[Name, list[Name]]
    grants: list[_GrantTable] = msgspec.field(default_factory=list)
    rules: list[_RuleTable] = msgspec.field(default_factory=list)
    revoked: list[Name] = msgspec.field(default_factory=list)
    revoked_tokens: list[Name] = msgspec.field(default_factory=list)


class Decision(Record, frozen=True):
    """Answer of a policy.

    Attributes:
        allowed: True if the user may take the action.
        version: version of the policy.
        reason: sentence that names the grant, or the denial.
    """

    allowed: bool
    version: Number
    reason: str


class Change(Record, frozen=True):
    """Difference between two policies for one role and action.

    Attributes:
        role: name of the role.
        action: the action.
        kind: "new", "gone", "wider", "narrower" or "different".
        before: filter of the older policy; None for none.
        after: filter of the newer policy; None for none.
    """

    role: str
    action: Action
    kind: Literal["new", "gone", "wider", "narrower", "different"]
    before: str | None
    after: str | None


class Policy(Printable):
    """A policy; `from_toml` reads one that people wrote.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.access import Grant, Policy, Rule
        >>> policy = Policy(
        ...     Schema(ward=Category(["A", "B"]), age=UInt(7)),
        ...     version=1,
        ...     roles={"doctor": ["ann"], "researcher": ["bob"]},
        ...     grants=[
        ...         Grant("doctor", ("subscribe", "receive"), "ward = 'A'"),
        ...         Grant("researcher", ("receive",)),
        ...     ],
        ...     rules=[Rule("no minors", "owner", "age < 18", roles=("researcher",))],
        ... )
        >>> policy.decide("ann", "receive", {"ward": "A", "age": 7}).allowed
        True
        >>> policy.decide("bob", "receive", {"ward": "A", "age": 7}).reason
        "the owner's rule 'no minors' denies it"
        >>> policy.decide("ann", "subscribe", "age > 60").reason
        'the subscription matches events that no grant of doctor covers'
        >>> policy.narrow(("doctor",), "age > 60").text
        "(age > 60) AND (ward = 'A')"

    Attributes:
        schema: attributes of events.
        version: number of the policy; the next version has a greater one.
        roles: users of each role, by the role's name.
        grants: permissions.
        rules: denials.
        revoked: users that have no role any more.
        revoked_tokens: numbers of tokens that were revoked (`Token.numbers`).
    """

    def __init__(
        self,
        schema: Schema,
        *,
        version: int,
        roles: Mapping[str, Iterable[str]],
        grants: Iterable[Grant],
        rules: Iterable[Rule] = (),
        revoked: Iterable[str] = (),
        revoked_tokens: Iterable[str] = (),
    ) -> None:
        """Make a policy.

        Raises:
            ParameterError: a grant or a rule names a role that is not there, or two rules have one
                name.
            PredicateError: a filter does not parse.
        """
        content = _Content(
            instance("schema", schema, Schema).to_json(),
            version,
            {role: tuple(sorted(set(users))) for role, users in roles.items()},
            tuple(grants),
            tuple(rules),
            tuple(sorted(set(revoked))),
            tuple(sorted(set(revoked_tokens))),
        )
        self.schema, self.version, self._content = schema, version, content
        self.roles, self.grants, self.rules = content.roles, content.grants, content.rules
        self.revoked, self.revoked_tokens = frozenset(content.revoked), frozenset(content.tokens)
        for subject, names in [
            *((f"grant {place}", (one.role,)) for place, one in enumerate(self.grants)),
            *((f"rule {one.name!r}", one.roles) for one in self.rules),
        ]:
            if unknown := [name for name in names if name not in self.roles]:
                known = ", ".join(self.roles) or "none"
                raise ParameterError(f"{subject} names the role {unknown[0]!r}; roles: {known}")
        if len({rule.name for rule in self.rules}) < len(self.rules):
            raise ParameterError("two rules have the same name")
        self._granted = [self._parsed("filter", one.filter) for one in self.grants]
        self._denied = [self._parsed("deny", one.deny) for one in self.rules]
        self._permitting = [
            self._parsed("deny", f"NOT {_enclosed(one.deny)}") for one in self.rules
        ]
        # Filters, tests and roles are asked for with every message.
        self.filter, self.test, self.rate = (
            cache(self._filter),
            cache(self._test),
            cache(self._rate),
        )

    def __repr__(self) -> str:
        return f"<Policy {self.version}: {len(self.roles)} roles, {len(self.grants)} grants>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and self._content == other._content

    def __hash__(self) -> int:
        return hash((self.version, len(self.grants)))

    def _parsed(self, name: str, text: str) -> Predicate:
        return bound_predicate(self.schema, text, name)

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read a policy from a TOML file that people write and review.

        Example:
            >>> from ccbps.access import Policy
            >>> Policy.from_toml('''
            ... version = 7
            ... schema = 'ward=Category(["A", "B"]), age=UInt(7)'
            ... [roles]
            ... doctor = ["ann"]
            ... [[grants]]
            ... role = "doctor"
            ... actions = ["subscribe", "receive"]
            ... filter = "ward = 'A'"
            ... ''')
            <Policy 7: 1 roles, 1 grants>

        Raises:
            ParameterError: it is no TOML, or a field is missing, unknown or of another type.
            PredicateError: a filter does not parse.
        """
        try:
            file = msgspec.convert(tomllib.loads(text), _File)
        except tomllib.TOMLDecodeError as error:
            raise ParameterError(f"the policy is no TOML: {error}") from None
        except msgspec.ValidationError as error:
            problem = str(error).replace("`", "").replace("$.", "")
            raise ParameterError(f"the policy is malformed: {problem}") from None
        return cls(
            schema_from_text(file.schema),
            version=file.version,
            roles=file.roles,
            grants=[
                Grant(one.role, tuple(one.actions), one.filter, one.rate, one.burst)
                for one in file.grants
            ],
            rules=[
                Rule(one.name, one.by, one.deny, tuple(one.actions), tuple(one.roles))
                for one in file.rules
            ],
            revoked=file.revoked,
            revoked_tokens=file.revoked_tokens,
        )

    def following(self, **changes: Any) -> Policy:
        """Return the next version, with some arguments of the constructor changed.

        Example:
            >>> from ccbps import Schema, UInt
            >>> from ccbps.access import Policy
            >>> policy = Policy(Schema(age=UInt(7)), version=1, roles={"doctor": []}, grants=[])
            >>> policy.following(roles={"doctor": ["ann"]}).version
            2
        """
        kept = {
            "roles": self.roles,
            "grants": self.grants,
            "rules": self.rules,
            "revoked": self.revoked,
            "revoked_tokens": self.revoked_tokens,
        }
        return Policy(self.schema, version=self.version + 1, **{**kept, **changes})

    def to_bytes(self) -> bytes:
        """Return the bytes of the policy; equal policies have equal bytes."""
        return self._content.to_bytes()

    @classmethod
    def from_bytes(cls, message: bytes) -> Self:
        """Read what `to_bytes` gave.

        Raises:
            DecodeError: it is no policy.
        """
        content = _Content.from_bytes(message)
        try:
            return cls(
                Schema.from_json(content.schema),
                version=content.version,
                roles=content.roles,
                grants=content.grants,
                rules=content.rules,
                revoked=content.revoked,
                revoked_tokens=content.tokens,
            )
        except (ParameterError, PredicateError):
            pass
        raise DecodeError("not a policy of this version, or cut off")

    # -- decisions -------------------------------------------------------------------------------

    @cached_property
    def _roles_of(self) -> dict[str, Roles]:
        found: dict[str, list[str]] = {}
        for role in sorted(self.roles):
            for user in self.roles[role]:
                found.setdefault(user, []).append(role)
        return {user: tuple(roles) for user, roles in found.items() if user not in self.revoked}

    def roles_of(self, user: str) -> Roles:
        """Return the roles of a user; none if it was revoked."""
        return self._roles_of.get(user, ())

    def _filter(self, roles: Roles, action: Action) -> Predicate | None:
        """Return the filter of some roles and an action; None if no grant allows the action."""
        granted = [self.grants[place].filter for place in self._grants_for(roles, action)]
        if not granted:
            return None
        text = " OR ".join(map(_enclosed, granted)) if len(granted) > 1 else granted[0]
        return self._unless_denied(text, roles, action)

    def _unless_denied(self, text: str, roles: Roles, action: Action) -> Predicate:
        denied = [self._permitting[place].text for place in self._rules_for(roles, action)]
        clauses = denied if denied and text == "TRUE" else [_enclosed(text), *denied]
        return self._parsed("filter", " AND ".join(clauses) if denied else text)

    def parts(self, roles: Roles, action: Action) -> list[Predicate]:
        """Return the filter of some roles and an action as an OR of predicates, one for each grant.

        The parts are for matchers that take no OR. Parts that match nothing are left out.
        """
        parts = [
            self._unless_denied(self.grants[place].filter, roles, action)
            for place in self._grants_for(roles, action)
        ]
        return [part for part in parts if not part.never_matches]

    def _rules_for(self, roles: Roles, action: Action) -> list[int]:
        """Return the places of the rules that concern some roles and an action."""
        return [
            place
            for place, rule in enumerate(self.rules)
            if action in rule.actions and (not rule.roles or not {*rule.roles}.isdisjoint(roles))
        ]

    def _test(self, roles: Roles, action: Action) -> Callable[[Mapping[str, int]], bool]:
        """Return a function that tells from the codes of an event whether the filter is TRUE."""
        allowed = self.filter(roles, action)
        return _nothing if allowed is None else code_test(allowed)

    def _rate(self, roles: Roles, action: Action) -> tuple[float, float] | None:
        """Return events a second and at once, by the most generous grant; None for any number."""
        grants = [one for one in self.grants if one.role in roles and action in one.actions]
        if not grants or any(one.rate is None for one in grants):
            return None
        rates = [(one.rate or 0.0, one.burst or max(1.0, one.rate or 0.0)) for one in grants]
        return max(rate for rate, _ in rates), max(burst for _, burst in rates)

    def decide(self, user: str, action: Action, content: Any) -> Decision:
        """Decide whether a user may take an action, and say why.

        Args:
            user: name of the user.
            action: the action.
            content: a record, for "publish" and "receive"; a predicate, for "subscribe" and
                "advertise".

        Raises:
            EventError: the record does not fit the schema.
            PredicateError: the predicate does not parse.
            UnsupportedPredicateError: the predicate has too many alternatives to compare it.
        """
        choice("action", action, ACTIONS)
        roles = self.roles_of(user)
        if not roles:
            reason = "was revoked" if user in self.revoked else "has no role"
            return Decision(False, self.version, f"{user} {reason}")
        listed = ", ".join(roles)
        allowed = self.filter(roles, action)
        if allowed is None:
            return Decision(False, self.version, f"no grant lets {listed} {action}")
        if action in ON_FILTERS:
            asked = bound_predicate(self.schema, content, "content")
            may = asked.implies(allowed)
            denials = [
                place
                for place in self._rules_for(roles, action)
                if not may and not asked.implies(self._permitting[place])
            ]
            grants = [
                place
                for place in self._grants_for(roles, action)
                if may and asked.implies(self._granted[place])
            ]
        else:
            events = self.schema.encode([content])
            may = bool(allowed.evaluate(events)[0])
            denials = [
                place
                for place in self._rules_for(roles, action)
                if not self._permitting[place].evaluate(events)[0]
            ]
            grants = [
                place
                for place in self._grants_for(roles, action)
                if self._granted[place].evaluate(events)[0]
            ]
        return Decision(may, self.version, self._reason(action, listed, may, grants, denials))

    def _grants_for(self, roles: Roles, action: Action) -> list[int]:
        return [
            place
            for place, grant in enumerate(self.grants)
            if grant.role in roles and action in grant.actions
        ]

    def _reason(
        self, action: Action, roles: str, may: bool, grants: list[int], denials: list[int]
    ) -> str:
        if may:
            if not grants:  # a subscription may need several grants together
                return f"the grants of {roles} together cover it"
            grant = self.grants[grants[0]]
            return f"grant {grants[0]} of {grant.role} allows it: {grant.filter}"
        if denials and (grants or action in ON_FILTERS):
            rule = self.rules[denials[0]]
            if action in ON_FILTERS:
                return f"the {rule.by}'s rule {rule.name!r} denies events that it matches"
            return f"the {rule.by}'s rule {rule.name!r} denies it"
        if action in ON_FILTERS:
            kind = "subscription" if action == "subscribe" else "advertisement"
            return f"the {kind} matches events that no grant of {roles} covers"
        return f"no grant of {roles} covers this event"

    def allows(self, user: str, action: Action, records: Any) -> Bools:
        """Tell for which events the filter of a user's roles is TRUE, shape (events,).

        Args:
            user: name of the user.
            action: the action.
            records: `Events` of the schema, or anything that `Schema.encode` takes.

        Raises:
            EventError: the records do not fit the schema.
        """
        allowed = self.filter(self.roles_of(user), choice("action", action, ACTIONS))
        never = self.schema.parse("FALSE") if allowed is None else allowed
        return never.evaluate(records)

    def narrow(
        self, roles: Roles, predicate: str | Predicate, actions: tuple[Action, ...] = ACTIONS[2:]
    ) -> Predicate | None:
        """Return a subscription AND the filters of the roles; None if they may not subscribe.

        A narrowed subscription needs no decision for each event (*pre-matching*). It is equivalent
        to the original one if that implies the filters.

        Args:
            roles: the subscriber's roles.
            predicate: SQL text, or a bound predicate.
            actions: actions whose filters count; by default "subscribe" and "receive".

        Raises:
            PredicateError: the predicate does not parse.
        """
        asked = bound_predicate(self.schema, predicate, "predicate")
        filters = [self.filter(roles, action) for action in actions]
        return None if None in filters else self._all_of(asked, filters)

    def narrow_parts(
        self, roles: Roles, predicate: str | Predicate, actions: tuple[Action, ...] = ACTIONS[2:]
    ) -> list[Predicate]:
        """Return the result of `narrow` as an OR of predicates, for matchers that take no OR.

        There is one predicate for each choice of a grant for each action. Predicates that match
        nothing are left out.

        Raises:
            PredicateError: the predicate does not parse.
        """
        asked = bound_predicate(self.schema, predicate, "predicate")
        chosen = product(*(self.parts(roles, action) for action in actions))
        narrowed = [self._all_of(asked, filters) for filters in chosen]
        parts = {one.text: one for one in narrowed}
        return [part for part in parts.values() if not part.never_matches]

    def _all_of(self, asked: Predicate, filters: Iterable[Predicate | None]) -> Predicate:
        texts = dict.fromkeys([asked.text, *(one.text for one in filters if one is not None)])
        texts.pop("TRUE", None)
        narrowed = self.schema.parse(" AND ".join(map(_enclosed, texts)) or "TRUE")
        return narrowed.bind(**asked.bound_values) if asked.private_names else narrowed

    # -- for reviewers ---------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """Return remarks for whoever reviews the policy: each names a grant, a role or a rule.

        They are about grants and rules without effect, roles without users or grants, users that
        were revoked and have a role, and rules that leave nothing of a role's grants.
        """
        remarks = [f"role {role}: no users" for role, users in self.roles.items() if not users]
        granted = {grant.role for grant in self.grants}
        remarks += [f"role {role}: no grants" for role in self.roles if role not in granted]
        for place, (grant, predicate) in enumerate(zip(self.grants, self._granted, strict=True)):
            if predicate.never_matches:
                remarks.append(f"grant {place} of {grant.role}: no event matches {grant.filter}")
            for other, wider in enumerate(self.grants):
                if (
                    other != place
                    and wider.role == grant.role
                    and {*grant.actions} <= {*wider.actions}
                ):
                    same = _implies(self._granted[other], predicate)
                    if _implies(predicate, self._granted[other]) and not (same and other > place):
                        remarks.append(f"grant {place} of {grant.role}: grant {other} covers it")
                        break
        for rule, predicate in zip(self.rules, self._denied, strict=True):
            if predicate.never_matches:
                remarks.append(f"rule {rule.name!r}: it denies nothing")
        for role in self.roles:
            for action in ACTIONS:
                allowed = self.filter((role,), action)
                if allowed is not None and allowed.never_matches:
                    remarks.append(f"role {role}: rules leave nothing to {action}")
        known = {user for users in self.roles.values() for user in users}
        remarks += [f"user {user}: revoked, and of no role" for user in self.revoked - known]
        return remarks

    def changes(self, newer: Policy) -> list[Change]:
        """Return the differences to another policy, by role and action.

        Raises:
            ParameterError: the other policy has another schema.
        """
        if instance("newer", newer, Policy).schema != self.schema:
            raise ParameterError("newer must be a policy of the same schema")
        changes = []
        for role in [*self.roles, *(role for role in newer.roles if role not in self.roles)]:
            for action in ACTIONS:
                before, after = self.filter((role,), action), newer.filter((role,), action)
                kind = _kind_of_change(before, after)
                if kind is not None:
                    texts = [None if one is None else one.text for one in (before, after)]
                    changes.append(Change(role, action, kind, *texts))
        return changes


def _enclosed(text: str) -> str:
    """Return a predicate in parentheses, even if a comment is at its end."""
    return f"({text}\n)" if "--" in text else f"({text})"


def _implies(narrow: Predicate, wide: Predicate) -> bool:
    """Tell whether a predicate implies another one; False where that is too much work to tell."""
    try:
        return narrow.implies(wide)
    except UnsupportedPredicateError:
        return False


def _kind_of_change(
    before: Predicate | None, after: Predicate | None
) -> Literal["new", "gone", "wider", "narrower", "different"] | None:
    if before is None or after is None:
        return None if before is after else "new" if before is None else "gone"
    if before.text == after.text:
        return None
    grows, shrinks = _implies(before, after), _implies(after, before)
    if grows and shrinks:
        return None
    return "wider" if grows else "narrower" if shrinks else "different"


def _nothing(_: Mapping[str, int]) -> bool:
    return False


def code_test(predicate: Predicate) -> Callable[[Mapping[str, int]], bool]:
    """Return a function that tells from the codes of one event whether a predicate is TRUE.

    It takes about a microsecond, where `Predicate.evaluate` takes many for one event.

    Args:
        predicate: a predicate whose constants are bound.

    Raises:
        UnsupportedPredicateError: the predicate has more than 256 alternatives.
    """
    products = [[*product.items()] for product in predicate.alternatives()]
    if products == [[]]:
        return _everything

    def holds(codes: Mapping[str, int]) -> bool:
        for part in products:
            for name, intervals in part:
                code = codes[name]
                for low, high in intervals:
                    if low <= code <= high:
                        break
                else:
                    break
            else:
                return True
        return False

    return holds


def _everything(_: Mapping[str, int]) -> bool:
    return True
