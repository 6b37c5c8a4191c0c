package oracle;

import org.apache.rocketmq.store.MessageExtBrokerInner;

/** The message a broker hands to its store: 5.x and 4.x keep it in different packages. */
final class BrokerMessage extends MessageExtBrokerInner {
}
