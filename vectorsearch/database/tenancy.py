"""`Tenancy`: the part of a database that has models of its own registered, and, at the root of a store, tenants."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, Unpack

from backends.errors import InvalidInput
from lifecycle import LoadPolicy, ModelConfig
from vectorsearch.database.tenants import AS_BEFORE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from vectorsearch.database.database import Database
    from vectorsearch.database.tenants import TenantInfo, TenantOptions, Tenants
    from vectorsearch.models.registration import RegisteredModel, Registration


class Tenancy:
    """What a database can register, and whom it lets in. `Database` is one."""

    def __init__(self, tenant_name: str, registration: Registration, tenants: Tenants | None) -> None:
        self.tenant_name = tenant_name
        self._registration = registration
        self._tenants = tenants

    @property
    def quota_nbytes(self) -> int | None:
        """Return the bytes that the tenant's models may take together, None for no quota; `tenant` sets it."""
        return self._registration.quota_nbytes

    def tenant(
        self,
        name: str,
        *,
        quota_nbytes: int | Literal["default"] | None = AS_BEFORE,
        guaranteed_nbytes: int | Literal["default"] = AS_BEFORE,
        **options: Unpack[TenantOptions],
    ) -> Database:
        """Return a tenant's database in this store, made if there is none; the same one each time, closed with this.

        It has documents, indexes, registered models and an embedder of its own; `options` are `embed`, `rerank`,
        `language`, `stop_words`, `fold_accents`, `k1`, `b`, `lexical` and `dense_index` of `vectorsearch.open`, the
        embedder being this database's by default.
        Models of all tenants share the budget: the tenant's may take `quota_nbytes` at most (None: no quota), and of
        what it uses, `guaranteed_nbytes` never leave for another. Sizes that are not given stay as they are.

        Raises:
            InvalidInput: the name can't be used, a size is negative, it is open with other options, or this is a
                tenant's database itself.
            DamagedDatabase: its documents are missing; they aren't made anew.
        """
        return self._root().get(name, quota_nbytes=quota_nbytes, guaranteed_nbytes=guaranteed_nbytes, **options)

    def tenants(self) -> tuple[TenantInfo, ...]:
        """Return the tenants of this store, by name."""
        return self._root().list()

    def remove_tenant(self, name: str) -> None:
        """Remove a tenant, its documents and models; what only it used is freed.

        Raises:
            UnknownTenant: there is none of this name.
        """
        self._root().remove(name)

    def register_model(
        self,
        name: str,
        source: str | Path,
        task: str,
        *,
        ttl_s: float | None = None,
        priority: int = 0,
        load_policy: str = LoadPolicy.LAZY,
        warm_up: bool = True,
        pinned: bool = False,
        min_residency_s: float = 0.0,
        compare: bool = True,
        progress: Callable[[str], object] | None = None,
        accept_keys: Sequence[str] = (),
    ) -> RegisteredModel:
        """Register a model under a name of this tenant's own, for `search(rerank=NAME)` or as an embedder.

        `source` is a folder in Hugging Face layout or a catalogue name; `task` is "cross-encoder" or "embedder". The
        files are copied into the store, and the model is loaded and tried before the name counts; a name that means a
        model already is exchanged without a search that fails. The documents' embedder, registered again after its
        files were damaged or lost, serves at once. The options are those of `lifecycle.ModelConfig`.

        A folder's model is tried in a confined child process first, with the memory of the quota or the budget and 60
        seconds; what it took there it is charged (`RegisteredModel.trial`). With `compare` its answers are compared
        with sentence-transformers', where that is installed and reads the folder, in more time than those 60 seconds.
        `progress` is told each step.

        A key of the folder's configuration that isn't understood is refused by its name. With `accept_keys` you say of
        such keys that they change no answer: they are stored, and part of the model's digest. A tenant can't say so.

        Raises:
            InvalidInput: the name, the task or an option can't be used, the model is too large, or the documents are
                embedded with the one that would be exchanged.
            UnknownModel, InvalidModel, CannotServe, ModelUnavailable: there is no such model, or it can't be served.
            InferenceError, LifecycleError: it can't be loaded, or its answers are no numbers.
        """
        if load_policy not in list(LoadPolicy):
            raise InvalidInput(f"load_policy {load_policy!r}: use {' or '.join(map(repr, map(str, LoadPolicy)))}")
        config = ModelConfig(
            load_policy=LoadPolicy(load_policy),
            ttl_s=None if ttl_s == math.inf else ttl_s,
            priority=priority,
            pinned=pinned,
            warm_up=warm_up,
            min_residency_s=min_residency_s,
        )
        registered = self._registration.register(
            name, source, task=task, config=config, compare=compare, progress=progress, accept_keys=accept_keys
        )
        for tenant in self._tenants.opened() if self._tenants else ():
            tenant._registration.find_lent(name, self._registration)  # noqa: SLF001 -- of this class
        return registered

    def unregister_model(self, name: str) -> None:
        """Forget a registered model; its memory and, if no other tenant uses them, its files are freed.

        Raises:
            UnknownModel: there is none of this name.
            InvalidInput: the documents are embedded with it.
        """
        self._registration.unregister(name)

    def registered_models(self, *, all_tenants: bool = False) -> tuple[RegisteredModel, ...]:
        """Return the models that this tenant has registered, by name; or the store's and those of `all_tenants`.

        Raises:
            InvalidInput: `all_tenants` is asked of a tenant.
        """
        return self._root().registered() if all_tenants else self._registration.registered()

    def _root(self) -> Tenants:
        if self._tenants is None:
            raise InvalidInput(f"{self.tenant_name!r} is a tenant itself: ask the database that it belongs to")
        return self._tenants
