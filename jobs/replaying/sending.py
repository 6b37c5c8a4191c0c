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
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rocketmq_reindex.jobs.exporting import formats
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.record import meaning
from rocketmq_reindex.storage_format.record.layout import FLAG_INNER_BATCH
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs.messages.batches import BODY

REQUEST_SECONDS: Final = 20.0
"""a message without an answer for so long is doubtful"""
_CONNECT_SECONDS: Final = 8.0
_ROUTE_TRIES: Final = 60
_ROUTE_PAUSE: Final = 0.5
"""seconds between two questions for a topic to a proxy that says it is busy"""
_SENT, _REFUSED, _BUSY, _UNKNOWN = "sent", "refused", "busy", "unknown"
NORMAL, FIFO, DELAY, TRANSACTION = 1, 2, 3, 4
"""``MessageType`` of the protocol"""
_OK: Final = "OK"
_TOO_MANY: Final = ("TOO_MANY_REQUESTS",)
_TIMEOUT, _ERRORS = 40_800, 50_000
"""With this code, and from the other one on, a message may be stored: time-outs, and errors inside of proxy and broker."""
_NOT_STORED: Final = ("NOT_IMPLEMENTED", "UNSUPPORTED", "VERSION_UNSUPPORTED", "VERIFY_FIFO_MESSAGE_UNSUPPORTED")
_ILLEGAL: Final = "the message is illegal"
"""With this a broker refuses a message of a size it does not take; a proxy has the code of any error for it."""
_MISSING: Final = "the gRPC client is not installed: pip install 'rocketmq-reindex[replay]'"


# --------------------------------------------------------------------------------------------------------------------- messages
# What is sent of a row of an export.

GROUP: Final = "__SHARDINGKEY"
"""the property with a message's group"""
_NOT_COPIED: Final = frozenset({
    GROUP,
    "1ST_POP_TIME", "ARRIVE_TIME", "BORN_TIMESTAMP", "BUYER_ID", "CHECK_IMMUNITY_TIME_IN_SECONDS", "CLUSTER",
    "CONSUME_START_TIME", "CORRECTION_FLAG", "CORRELATION_ID", "DELAY", "DLQ_ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_TOPIC",
    "DUP_INFO", "EXTEND_UNIQ_INFO", "INNER_BASE", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "INNER_NUM",
    "INSTANCE_ID", "KEYS", "MAX_OFFSET", "MAX_RECONSUME_TIMES", "MIN_OFFSET", "MQ2_FLAG", "MSG_REGION", "MSG_TYPE",
    "ORIGIN_GROUP", "ORIGIN_MESSAGE_ID", "PGROUP", "POP_CK", "POP_CK_OFFSET", "PROPERTY_FORWARD_QUEUE_ID",
    "PUSH_REPLY_TIME", "REAL_QID", "REAL_TOPIC", "RECONSUME_TIME", "REDIRECT", "REPLY_TO_CLIENT", "RETRY_TOPIC", "TAGS",
    "TIMER_DELAY_LEVEL", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY", "TIMER_DEQUEUE_MS",
    "TIMER_ENQUEUE_MS", "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TRACE_CONTEXT", "TRACE_ON", "TRANSACTION_CHECK_TIMES",
    "TRANSFER_FLAG", "TRAN_MSG", "TRAN_PREPARED_QUEUE_OFFSET", "TTL", "UNIQ_KEY", "WAIT", "_SYS_MSG_PRIORITY_",
    "__BORNHOST", "__CRC32#", "__LITE_TOPIC", "__transactionId__",
})  # fmt: skip
"""properties of RocketMQ's own (``MessageConst``): broker and client set those anew that the message needs"""
_TRANSIENT: Final = "__RMQ.TRANSIENT."
ROW: Final = (
    "topic", "queueId", "consumeQueueOffset", "realTopic", "realQueueId", "deliverTimestamp", "storeTimestamp", "storeHost",
    "bornTimestamp", "uniqKey", "keys", "tags", "batchSize", "sysFlag", "commitLogOffset", "properties", formats.PACKED, BODY,
    "kind",
)  # fmt: skip
"""the columns that ``Outgoing`` is made of"""


class Outgoing(NamedTuple):
    """A message as it is sent, and the queue that it comes from. ``deliver_time`` is milliseconds since 1970."""

    topic: str
    id: str
    body: bytes
    tag: str | None
    keys: str | None
    properties: dict[str, str]
    group: str | None
    deliver_time: int | None
    born_time: int
    source: tuple[str, int]

    def kind(self, types: frozenset[int]) -> int:
        """Return the type as which it is sent to a topic that takes ``types``."""
        if self.deliver_time is not None and (self.deliver_time > now() or DELAY in types):
            return DELAY
        if self.group is not None:
            return FIFO
        # What was delayed, or in a transaction, has come to its end: it is sent as such to a topic that takes nothing else.
        return next((kind for kind in (NORMAL, DELAY, TRANSACTION) if kind in types), NORMAL)


def now() -> int:
    """Return the time as milliseconds since 1970."""
    return int(time.time() * 1000)


def flaw(row: Mapping[str, Any]) -> str:
    """Return why a row cannot be sent; "" where it can."""
    if row["batchSize"] > 1 or row["sysFlag"] & FLAG_INNER_BATCH:
        return f"it is a batch of {row['batchSize']} messages in one record, which are not taken apart"
    return "" if row[formats.PACKED] is None else "its body does not unpack, or into more than --body-max"


def outgoing(row: Mapping[str, Any], topics: Mapping[str, str], new_id: str, *, queue_groups: bool) -> Outgoing:
    """Return what is sent of a row. ``topics`` are other names; ``queue_groups``: a queue is a group where there is none."""
    waits = row["kind"] in (meaning.SCHEDULED, meaning.TIMER)
    topic = row["realTopic"] if waits else row["topic"]
    queue_id = row["realQueueId"] if waits and row["realQueueId"] is not None else row["queueId"]
    properties = dict(row["properties"] or ())
    group = properties.get(GROUP) or (f"{topic}-{queue_id}" if queue_groups else None)
    kept = {
        name: value or ""
        for name, value in properties.items()
        if name not in _NOT_COPIED and not name.startswith((_TRANSIENT, meaning.REPLAY_ORIGIN))
    }
    origin = {
        "broker": row["storeHost"], "topic": topic, "queue_id": queue_id,
        "queue_offset": None if waits else row["consumeQueueOffset"], "phy_offset": row["commitLogOffset"],
        "message_id": row["uniqKey"], "born_time": row["bornTimestamp"], "store_time": row["storeTimestamp"],
    }  # fmt: skip
    kept |= {f"{meaning.REPLAY_ORIGIN}{name}": str(value) for name, value in origin.items() if value is not None}
    return Outgoing(
        topics.get(topic, topic), new_id, row[BODY], row["tags"] or None, row["keys"] or None, kept, group,
        row["deliverTimestamp"] if waits else None, row["bornTimestamp"], (topic, queue_id),
    )  # fmt: skip


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


@dataclass(frozen=True)
class Credentials:
    """Access key and secret key; neither is ever shown."""

    access_key: str = ""
    secret_key: str = ""

    def __repr__(self) -> str:
        return "Credentials(...)"


def _client() -> tuple[Any, Any]:
    """Import gRPC and the client's protocol. Raises InputError where they are not installed.

    The client opens a log file below the user's home while it is imported: it gets another home for that.
    """
    home = os.environ.get("HOME")
    with tempfile.TemporaryDirectory(prefix="rmq-reindex-") as folder:
        os.environ["HOME"] = folder
        try:
            import grpc
            from rocketmq import grpc_protocol
        except ImportError:
            raise InputError(_MISSING) from None
        finally:
            if home is None:
                del os.environ["HOME"]
            else:
                os.environ["HOME"] = home
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
        self._route("rmq-reindex-replay", is_probe=True)

    def close(self) -> None:
        """Close the connection. Calls that have no answer get one that says so."""
        self._channel.close()
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
        return frozenset(kind for queue in answer.message_queues for kind in queue.accept_message_types)

    def _no_proxy(self, error: Any) -> InputError:
        code = error.code().name if error.code() else "UNKNOWN"
        what = "does not answer as a RocketMQ 5 proxy does: replay needs the gRPC port of one (8081 by default)"
        if code == "UNAUTHENTICATED":
            what = "refuses the access key"
        return InputError(f"--to {escape(self.address)}: {what}: {code}: {escape(str(error.details() or ''), 160)}")

    def types_of(self, topic: str) -> frozenset[int] | str:
        """Return the types of messages that a topic takes, or why it takes none. Raises InputError where no answer comes."""
        if topic not in self._types:
            self._types[topic] = self._route(topic)
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
        if message.group is not None:
            system.message_group = message.group
        if kind == DELAY:
            _set_time(system.delivery_timestamp, message.deliver_time or now())
        _set_time(system.born_timestamp, message.born_time)
        sent.user_properties.update(message.properties)
        call = self._stub.SendMessage.future(request, metadata=self._metadata(), timeout=REQUEST_SECONDS)
        call.add_done_callback(lambda ended: self._answered(ended, message, kind, done))

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
