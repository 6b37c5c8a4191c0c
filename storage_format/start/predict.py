"""What the start of a broker does to a store: ``DefaultMessageStore.load`` and ``start``, until all is dispatched."""

from __future__ import annotations

from rocketmq_reindex.storage_format.start.prediction import Prediction
from rocketmq_reindex.storage_format.start.store import DEFAULT_COUNT_LIMIT, StartSettings, Store


def predict(store: Store, settings: StartSettings, count_limit: int = DEFAULT_COUNT_LIMIT) -> Prediction:
    """What a start of ``settings.release`` does to ``store``, up to where no record waits for dispatch.

    The caller has made sure that the files load: their sizes and names, a lock, folders that disagree. What only the recovery
    itself finds, and what then keeps the broker from starting, is in ``refusals``, with ``loads`` false.

    ``count_limit`` is how many bytes of the commitlog may be walked only to count what the broker itself does not read;
    where more would have to be, counts are -1.

    Raises ValueError for a release that is not one of RELEASES. Mirrors ``DefaultMessageStore.load`` (4.9.8 to 5.5.1).
    """
    raise NotImplementedError
