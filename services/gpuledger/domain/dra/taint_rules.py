"""Indexes taint rules by the pool that they name, so that a pool sees only the rules about it. Pure."""

from collections.abc import Iterable

from gpuledger.domain.dra.objects import PoolId, TaintRule


class TaintRules:
    """The rules in force."""

    def __init__(self, rules: Iterable[TaintRule]) -> None:
        self._by_name: dict[str, TaintRule] = {}
        self._by_pool: dict[str | None, dict[str, TaintRule]] = {}
        for one in rules:
            self.put(one)

    def all(self) -> list[TaintRule]:
        """All of them, ordered by name."""
        return sorted(self._by_name.values(), key=lambda one: one.name)

    def get(self, name: str) -> TaintRule | None:
        """The rule of this name."""
        return self._by_name.get(name)

    def about(self, pool: PoolId) -> list[TaintRule]:
        """Those that are about a device of the pool, ordered by name."""
        if not self._by_name:
            return []
        named = {**self._by_pool.get(None, {}), **self._by_pool.get(pool.name, {})}
        return [one for _, one in sorted(named.items()) if one.driver in (None, pool.driver)]

    def put(self, rule: TaintRule) -> None:
        """A rule is set, or is another now."""
        self.drop(rule.name)
        self._by_name[rule.name] = rule
        self._by_pool.setdefault(rule.pool, {})[rule.name] = rule

    def drop(self, name: str) -> None:
        """A rule is lifted."""
        rule = self._by_name.pop(name, None)
        if rule is not None:
            named = self._by_pool[rule.pool]
            del named[name]
            if not named:
                del self._by_pool[rule.pool]
