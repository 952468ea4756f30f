"""Who changes what a running server serves: the other end of its admin socket, and the files that it reads."""

import json
import shutil
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import onnx
from tests.repositories import add_version


class Operator:
    """A connection to a server's admin socket."""

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(60)
        self.socket.connect(str(path))
        self._answers = self.socket.makefile("rb")

    def ask(self, **asked: object) -> dict[str, Any]:
        """One request, and its answer."""
        self.begin(**asked)
        return self.answer()

    def say(self, line: bytes) -> dict[str, Any]:
        """Any bytes, and the answer to them."""
        self.socket.sendall(line)
        return self.answer()

    def begin(self, **asked: object) -> None:
        """Ask, and wait for nothing."""
        self.socket.sendall(json.dumps(asked).encode() + b"\n")

    def answer(self) -> dict[str, Any]:
        """The next answer."""
        answer: dict[str, Any] = json.loads(self._answers.readline())
        return answer

    def done(self, do: str, **asked: object) -> str:
        """It was done; what was told."""
        answer = self.ask(do=do, **asked)
        assert answer["done"], answer["text"]
        return "; ".join(answer["text"])

    def refused(self, do: str, **asked: object) -> str:
        """It was not done; why."""
        answer = self.ask(do=do, **asked)
        assert not answer["done"], answer["text"]
        return "; ".join(answer["text"])

    def model(self, name: str) -> dict[str, Any]:
        """The status of one model."""
        return next(model for model in self.ask(do="status")["models"] if model["name"] == name)

    def live(self, name: str) -> str | None:
        """The version of this model that answers; None where there is no such model."""
        return next((model["live"] for model in self.ask(do="status")["models"] if model["name"] == name), None)

    def close(self) -> None:
        self._answers.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def add_whole_version(repository: Path, name: str, version: str, content: bytes | onnx.ModelProto | Path) -> Path:
    """As it should be done: copied under a name that is passed over, and renamed when it is whole."""
    folder = add_version(repository, name, f"{version}.part", content)
    return folder.rename(folder.with_name(version))


def replace_model(repository: Path, name: str, version: str, content: onnx.ModelProto) -> None:
    """Other content under the same name and version, there at once."""
    path = repository / name / version / "model.onnx"
    path.with_name("model.onnx.tmp").write_bytes(content.SerializeToString())
    path.with_name("model.onnx.tmp").rename(path)


def remove_version(repository: Path, name: str, version: str) -> None:
    shutil.rmtree(repository / name / version)
