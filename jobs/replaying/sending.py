"""The other side of a replay: a RocketMQ 5 proxy, spoken to by gRPC as the official Python client has it.

The client's protocol is used, and not its ``Producer``: that sends a message again by itself when no answer comes, so that a
message may be stored twice, forgets the order of keys, and takes no empty property.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import hmac
import importlib.metadata
import ipaddress
import os
import queue
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

from rocketmq_reindex.jobs.replaying.options import Credentials
from rocketmq_reindex.jobs.replaying.sources import DELAY, LITE, PRIORITY, TRANSACTION, Outgoing, now
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape

T = TypeVar("T")

REQUEST_SECONDS: Final = 20.0
"""a message without an answer for so long is doubtful"""
_CONNECT_SECONDS: Final = 8.0
_ROUTE_TRIES: Final = 60
_ROUTE_PAUSE: Final = 0.5
"""seconds between two questions for a topic to a proxy that says it is busy"""
_SENT, _REFUSED, _BUSY, _UNKNOWN = "sent", "refused", "busy", "unknown"
_OK: Final = "OK"
_TOO_MANY: Final = ("TOO_MANY_REQUESTS",)
_TIMEOUT, _ERRORS = 40_800, 50_000
"""With this code, and from the other one on, a message may be stored: time-outs, and errors inside of proxy and broker."""
_NOT_STORED: Final = ("NOT_IMPLEMENTED", "UNSUPPORTED", "VERSION_UNSUPPORTED", "VERIFY_FIFO_MESSAGE_UNSUPPORTED")
_ILLEGAL: Final = "the message is illegal"
"""With this a broker refuses a message of a size it does not take; a proxy has the code of any error for it."""
_ROOTS: Final = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
"""the variable of gRPC's own that names authorities in place of the system's"""
_MISSING: Final = "the gRPC client is not installed: pip install 'rocketmq-reindex[replay]'"


# ------------------------------------------------------------------------------------------------------------------------ proxy


class Answer(NamedTuple):
    """What became of a message that was sent; ``text`` is its new id, or the reason."""

    kind: str
    text: str

    @property
    def is_sent(self) -> bool:
        return self.kind == _SENT

    @property
    def is_refused(self) -> bool:
        """Whether the message is not stored, for sure."""
        return self.kind == _REFUSED

    @property
    def is_busy(self) -> bool:
        """Whether the message is not stored now, and may be sent again later."""
        return self.kind == _BUSY


def _client() -> tuple[Any, Any]:
    """Import gRPC and the client's protocol. Raises InputError where they are not installed.

    The client opens a log file below the user's home while it is imported: it gets another home for that.
    """
    # What gRPC itself writes on stderr of a handshake that fails, the error says.
    before = {name: os.environ.get(name) for name in ("HOME", "GRPC_VERBOSITY")}
    with tempfile.TemporaryDirectory(prefix="rmq-reindex-") as folder:
        os.environ |= {"HOME": folder, "GRPC_VERBOSITY": before["GRPC_VERBOSITY"] or "NONE"}
        try:
            import grpc
            from rocketmq import grpc_protocol
        except ImportError:
            raise InputError(_MISSING) from None
        finally:
            for name, value in before.items():
                del os.environ[name]
                os.environ |= {} if value is None else {name: value}
        _close_log()
    return grpc, grpc_protocol


def _close_log() -> None:
    import logging

    logger = logging.getLogger("rocketmq-python-client")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        with contextlib.suppress(OSError):
            handler.close()
    logger.addHandler(logging.NullHandler())


class _Calls(threading.Thread):
    """Makes all calls of gRPC. An interrupt reaches the main thread alone.

    Raised inside of gRPC it would leave a lock of gRPC's held, since ``threading.Condition`` is Python: the run would not end.
    """

    def __init__(self) -> None:
        super().__init__(name="calls", daemon=True)
        # It waits in C: an interrupt leaves it whole.
        self._waiting: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._is_over = False
        self.start()

    def run(self) -> None:
        while not self._is_over:
            self._waiting.get()()

    def put(self, call: Callable[[], object]) -> None:
        """Make a call that raises nothing, later."""
        self._waiting.put(call)

    def wait_for(self, call: Callable[[], T]) -> T:
        """Return what a call returns. Raises what it raises."""
        done: queue.SimpleQueue[Future[T]] = queue.SimpleQueue()
        self._waiting.put(lambda: done.put(_made(call)))
        return done.get().result()

    def end(self) -> None:
        """End behind the calls that are waiting."""
        self._waiting.put(lambda: setattr(self, "_is_over", True))


def _made(call: Callable[[], T]) -> Future[T]:
    made: Future[T] = Future()
    try:
        made.set_result(call())
    except Exception as error:  # noqa: BLE001  raised where the result is asked for
        made.set_exception(error)
    return made


class Proxy:
    """A proxy at HOST:PORT. It is asked at once whether it is one: raises InputError where nothing else is there."""

    def __init__(self, address: str, credentials: Credentials, *, tls: bool) -> None:
        self._grpc, self._api = _client()
        self._version = importlib.metadata.version("rocketmq-python-client")
        self.address, self._credentials = address, credentials
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._id = f"rmq-reindex@{os.getpid()}@{uuid.uuid4().hex[:12]}"
        options = [
            ("grpc.enable_retries", 0),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.enable_http_proxy", 0),
        ]
        if tls:
            self._channel = self._grpc.secure_channel(address, self._grpc.ssl_channel_credentials(), options)
        else:
            self._channel = self._grpc.insecure_channel(address, options)
        self._stub = self._api.MessagingServiceStub(self._channel)
        self._commits = ThreadPoolExecutor(2, "commits")
        self._types: dict[str, frozenset[int] | str] = {}
        self._calls = _Calls()
        self._calls.wait_for(lambda: self._route("rmq-reindex-replay", is_probe=True))

    def close(self) -> None:
        """Close the connection. Calls that have no answer get one that says so."""
        self._calls.wait_for(self._channel.close)
        self._calls.end()
        self._commits.shutdown(wait=False)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _metadata(self) -> list[tuple[str, str]]:
        date = dt.datetime.now(dt.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        signed = []
        if self._credentials.access_key:
            signature = hmac.new(self._credentials.secret_key.encode(), date.encode(), hashlib.sha1).hexdigest()
            keys = f"Credential={self._credentials.access_key}, SignedHeaders=x-mq-date-time, Signature={signature}"
            signed = [("authorization", f"MQv2-HMAC-SHA1 {keys}")]
        return [
            ("x-mq-language", "PYTHON"),
            ("x-mq-protocol", "GRPC_V2"),
            ("x-mq-client-version", self._version),
            ("x-mq-date-time", date),
            ("x-mq-request-id", str(uuid.uuid4())),
            ("x-mq-client-id", self._id),
            *signed,
        ]

    # ------------------------------------------------------------------------------------------------------------------- topics

    def _route(self, topic: str, *, is_probe: bool = False) -> frozenset[int] | str:
        """Ask for a topic. Return the types of messages that it takes, or why it takes none.

        Raises InputError for no proxy, and where the answer may be another one later, unless it ``is_probe`` alone.
        """
        request = self._api.QueryRouteRequest()
        request.topic.name = topic
        request.endpoints.scheme = self._api.AddressScheme.Value(_scheme(self._host))
        address = request.endpoints.addresses.add()
        address.host, address.port = self._host, self._port
        for tries in range(_ROUTE_TRIES):
            try:
                answer = self._stub.QueryRoute(request, metadata=self._metadata(), timeout=_CONNECT_SECONDS)
            except self._grpc.RpcError as error:
                raise self._no_proxy(error) from None
            code = self._name(answer.status.code)
            if is_probe or code not in _TOO_MANY or tries == _ROUTE_TRIES - 1:
                break
            time.sleep(_ROUTE_PAUSE)
        if code != _OK:
            text = f"{code}: {answer.status.message}"
            if not is_probe and (code in _TOO_MANY or int(answer.status.code) >= _ERRORS):
                where = f"--to {escape(self.address)}: topic {escape(topic, 80)}"
                raise InputError(f"{where}: {escape(text, 160)}: run it again to go on")
            return text
        known = set(self._api.MessageType.values())
        return frozenset(kind for queue in answer.message_queues for kind in queue.accept_message_types if kind in known)

    def _no_proxy(self, error: Any) -> InputError:
        code, details = error.code().name if error.code() else "UNKNOWN", str(error.details() or "")
        what = "does not answer as a RocketMQ 5 proxy does: replay needs the gRPC port of one (8081 by default)"
        if code == "UNAUTHENTICATED":
            what = "refuses the access key"
        elif "CERTIFICATE_VERIFY_FAILED" in details:
            what = f"its certificate is of no authority that is known here; {_ROOTS} names a file of others"
        elif "WRONG_VERSION_NUMBER" in details:
            what = "takes no TLS: leave --tls out"
        elif "handshake" in details or "Hostname Verification" in details:
            what = "no TLS connection can be made: is its certificate one for this host?"
        return InputError(f"--to {escape(self.address)}: {what}: {code}: {escape(details, 160)}")

    def types_of(self, topic: str) -> frozenset[int] | str:
        """Return the types of messages that a topic takes, or why it takes none. Raises InputError where no answer comes."""
        if topic not in self._types:
            self._types[topic] = self._calls.wait_for(lambda: self._route(topic))
        return self._types[topic]

    # ----------------------------------------------------------------------------------------------------------------- messages

    def send(self, message: Outgoing, kind: int, done: Callable[[Answer], None]) -> None:
        """Send a message of a type of the protocol, once. ``done`` gets the answer, in another thread."""
        request = self._api.SendMessageRequest()
        sent = request.messages.add()
        sent.topic.name = message.topic
        sent.body = message.body
        system = sent.system_properties
        system.message_id, system.message_type = message.id, kind
        system.body_encoding = self._api.Encoding.IDENTITY
        if message.tag is not None:
            system.tag = message.tag
        if message.keys is not None:
            # As one key: a proxy joins keys by blanks.
            system.keys.append(message.keys)
        if message.group is not None and kind not in (LITE, PRIORITY):
            system.message_group = message.group
        if kind == LITE:
            system.lite_topic = message.lite_topic
        elif kind == PRIORITY:
            system.priority = message.priority
        elif kind == DELAY:
            _set_time(system.delivery_timestamp, message.deliver_time or now())
        _set_time(system.born_timestamp, message.born_time)
        sent.user_properties.update(message.properties)
        self._calls.put(lambda: self._call(request, lambda ended: self._answered(ended, message, kind, done), done))

    def _call(self, request: Any, answered: Callable[[Any], None], done: Callable[[Answer], None]) -> None:
        try:
            call = self._stub.SendMessage.future(request, metadata=self._metadata(), timeout=REQUEST_SECONDS)
        except (self._grpc.RpcError, ValueError) as error:
            done(Answer(_UNKNOWN, str(error)))
        else:
            call.add_done_callback(answered)

    def _answered(self, ended: Any, message: Outgoing, kind: int, done: Callable[[Answer], None]) -> None:
        try:
            response = ended.result()
        except self._grpc.RpcError as error:
            return done(self._failed(error))
        except self._grpc.FutureCancelledError:
            return done(Answer(_UNKNOWN, "the call was cancelled"))
        answer = self._of_status(response.entries[0].status if response.entries else response.status)
        if not answer.is_sent or not response.entries:
            return done(answer._replace(text=answer.text or message.id))
        entry = response.entries[0]
        if kind != TRANSACTION:
            return done(Answer(_SENT, entry.message_id or message.id))
        # Not here: the thread that hears answers would wait for one.
        self._commits.submit(lambda: done(self._commit(message, entry, entry.message_id or message.id)))
        return None

    def _failed(self, error: Any) -> Answer:
        code, details = error.code().name if error.code() else "UNKNOWN", str(error.details() or "")
        if code in ("RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "PERMISSION_DENIED", "INVALID_ARGUMENT", "UNIMPLEMENTED"):
            return Answer(_REFUSED, f"{code}: {details}")
        return Answer(_UNKNOWN, f"{code}: {details}")

    def _of_status(self, status: Any) -> Answer:
        code = self._name(status.code)
        text = f"{code}: {status.message}"
        if code == _OK:
            return Answer(_SENT, "")
        if code in _TOO_MANY:
            return Answer(_BUSY, text)
        if status.message.startswith(_ILLEGAL):
            return Answer(_REFUSED, text)
        is_maybe = int(status.code) >= _ERRORS or int(status.code) in (0, _TIMEOUT)
        return Answer(_UNKNOWN if is_maybe and code not in _NOT_STORED else _REFUSED, text)

    def _commit(self, message: Outgoing, entry: Any, new: str) -> Answer:
        """Commit a message that was sent to a topic that takes transactions alone."""
        request = self._api.EndTransactionRequest()
        request.topic.name = message.topic
        request.message_id, request.transaction_id = new, entry.transaction_id
        request.resolution = self._api.TransactionResolution.COMMIT
        request.source = self._api.TransactionSource.SOURCE_CLIENT
        try:
            status = self._stub.EndTransaction(request, metadata=self._metadata(), timeout=REQUEST_SECONDS).status
        except self._grpc.RpcError as error:
            return Answer(_UNKNOWN, f"sent, and not known to be committed: {self._failed(error).text}")
        ended = self._of_status(status)
        return Answer(_SENT, new) if ended.is_sent else Answer(_UNKNOWN, f"sent, and not committed: {ended.text}")

    def _name(self, code: int) -> str:
        try:
            return str(self._api.Code.Name(code))
        except ValueError:
            return str(code)


def _scheme(host: str) -> str:
    try:
        return f"IPv{ipaddress.ip_address(host).version}"
    except ValueError:
        return "DOMAIN_NAME"


def _set_time(field: Any, milliseconds: int) -> None:
    field.seconds, field.nanos = milliseconds // 1000, milliseconds % 1000 * 1_000_000
