"""One request of the caller's: where it is asked, and what came of it. Both pools use it."""

from typing import Generic, TypeVar

from tickpath.client.conversation import Request
from tickpath.client.deadline import Deadline
from tickpath.client.errors import TickpathError
from tickpath.client.pool.asking import Asking
from tickpath.client.pool.course import Course
from tickpath.client.pool.servers import Server
from tickpath.client.prediction import Prediction

C = TypeVar("C")


class Call(Generic[C]):
    """`requests`: what is asked of whom, on which connection (C)."""

    def __init__(self, course: Course, asking: Asking, deadline: Deadline) -> None:
        self.course = course
        self.asking = asking
        self.deadline = deadline
        self.deadline_ns = deadline.at_ns()
        self.requests: dict[Server, tuple[C, Request[Prediction]]] = {}
        self._prediction: Prediction | None = None

    @property
    def has_news(self) -> bool:
        """Whether something is there to `collect`."""
        return any(request.done for _, request in self.requests.values())

    def collect(self, now_ns: int) -> None:
        """Tell the course what has become of what was asked. What comes after the first answer is not looked at."""
        for server, (_, request) in list(self.requests.items()):
            if request.done and not self.course.over:
                del self.requests[server]
                self._take(server, request, now_ns)

    def let_go(self, now_ns: int) -> list[tuple[C, Request[Prediction]]]:
        """Nobody waits any more. What is still asked, to be taken back."""
        if not self.course.over:
            self.course.drop(now_ns)
        asked = list(self.requests.values())
        self.requests.clear()
        return asked

    def result(self) -> Prediction:
        """Once its course is over. Raises TickpathError."""
        if self._prediction is not None:
            return self._prediction
        assert self.course.error is not None
        raise self.course.error

    def _take(self, server: Server, request: Request[Prediction], now_ns: int) -> None:
        try:
            self._prediction = request.result()
        except TickpathError as error:
            self.course.failed(server, error, now_ns)
        else:
            self.course.answered(server, now_ns)
