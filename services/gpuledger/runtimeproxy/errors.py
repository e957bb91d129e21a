"""What can go wrong in the proxy between the kubelet and the container runtime.

RuntimeProxyError
├── CallRefusedError    one call, which the kubelet gets as an error
├── SocketInUseError    another process serves on our socket
└── SocketError         the socket cannot be made
"""


class RuntimeProxyError(Exception):
    """The message says what is wrong and what to do."""


class CallRefusedError(RuntimeProxyError):
    """A call does not reach the runtime; the kubelet gets the message."""


class SocketInUseError(RuntimeProxyError):
    """Another process serves on the socket."""


class SocketError(RuntimeProxyError):
    """The socket cannot be made."""
