"""What both sides of the door answer from."""

from typing import Any

from tickpath.door import describe
from tickpath.door.inference import Inference
from tickpath.door.repository import Repository
from tickpath.door.tally import Tally
from tickpath.door.upstream import Upstream


class Services:
    """One core, as one caller may see it. `tally` is of all of them."""

    def __init__(self, upstream: Upstream, repository: Repository, version: str, tally: Tally) -> None:
        self.upstream = upstream
        self._repository = repository
        self._version = version
        self._tally = tally
        self.inference = Inference(upstream, tally)

    def server(self) -> dict[str, Any]:
        """ServerMetadataResponse."""
        return describe.server(self._version)

    async def metadata(self, name: str, version: str) -> dict[str, Any]:
        """ModelMetadataResponse. Raises TickpathError."""
        model = await self.upstream.fresh_model(name, version)
        return describe.metadata(model, (await self.upstream.listing()).versions_of(name))

    async def load(self, name: str) -> None:
        """Have what the model's files hold now served. Raises as Repository does."""
        await self._repository.load(name)
        self.upstream.forget()

    async def unload(self, name: str) -> None:
        """Have the whole model answer nobody. Raises as Repository does."""
        await self._repository.unload(name)
        self.upstream.forget()

    async def statistics(self, name: str, version: str) -> list[dict[str, Any]]:
        """A ModelStatistics for each loaded version of this model; without a name, of all. Raises TickpathError."""
        if name:
            await self.upstream.fresh_model(name, version)
        versions = (await self.upstream.listing()).versions
        return [self._tally.of(*key) for key in sorted(versions) if name in ("", key[0]) and version in ("", key[1])]
