"""What can go wrong between two peers, told apart by who did it."""

from tickpath.wire.codes import Code


class RemoteProtocolError(Exception):
    """The peer sent what this protocol does not allow. The session ends: nothing more it sends can be trusted.

    `code` is what a server answers under id 0: BAD_FRAME or BAD_MESSAGE here, UNAUTHENTICATED where it checks Hello.
    `message` says what was expected and what came.
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class LocalProtocolError(Exception):
    """We were about to send what this protocol does not allow: our own fault, nothing was sent."""
