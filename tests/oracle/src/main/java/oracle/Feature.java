package oracle;

import java.util.EnumSet;
import java.util.Set;
import java.util.SplittableRandom;

/** What a scenario may hold beside plain messages. A seed takes some of them. */
enum Feature {
    /** KEYS with leading, trailing, repeated and other blanks. */
    BLANKS(0.5),
    /** Keys, tags, values and topics beyond ASCII and beyond the BMP. */
    UNICODE(0.4),
    /** Topics and keys of equal hash codes. */
    COLLISIONS(0.4),
    /** TAGS: none, empty, any text. */
    TAGS(0.7),
    /** Half messages, commits and rollbacks. */
    TRANSACTIONS(0.4),
    /** The schedule topic, with levels that a client would not send, too. */
    DELAYS(0.4),
    /** {@code putMessages}: the only way to bytes in properties that are no UTF-8. */
    BATCHES(0.4),
    /** Hosts with addresses of 16 bytes. */
    IPV6(0.4),
    /** Topics of 128 to 255 bytes: records of the second version, which 5.x alone writes. */
    LONG_TOPICS(0.4),
    /** Light message queues: INNER_MULTI_DISPATCH. */
    LMQ(0.35),
    /** Property strings as no client writes them. */
    RAW_PROPERTIES(0.4),
    /** Bodies that hold whole records. */
    RECORD_BODIES(0.4),
    /** Store times that jump back and ahead. */
    CLOCK(0.4),
    /** A CRC property over each record, which 5.x alone writes. */
    RECORD_CRC(0.3),
    /** No body, long bodies. */
    ODD_BODIES(0.5),
    /** A last index file that is exactly full, or one item away from it. */
    FULL_INDEX(0.3),
    /** The first segments are gone: queues start above 0. */
    TRIMMED(0.3),
    /** Topics deleted and made again. */
    REMADE_TOPICS(0.3),
    /** Queue offsets that jump. */
    GAPS(0.3),
    /** The store is closed and opened in between. */
    RESTARTS(0.3),
    /** No message has a key. */
    KEYLESS(0.06),
    /** The end of the last record never reached the disk. */
    TORN(0.2),
    /** Segments of zeros behind the last one. */
    SPARE_SEGMENT(0.3),
    /** The last segment lacks its tail of zeros; the real store is given it. */
    SHORT_SEGMENT(0.15),
    /** More segments than a start looks back at, unless it is told to: ten from 5.4.0 on. */
    MANY_SEGMENTS(0.2);

    private final double share;

    Feature(double share) {
        this.share = share;
    }

    static Set<Feature> draw(SplittableRandom random, boolean version4) {
        Set<Feature> drawn = EnumSet.noneOf(Feature.class);
        for (Feature feature : values()) {
            // Always drawn, so that a seed has the same features in every version.
            if (random.nextDouble() < feature.share) {
                drawn.add(feature);
            }
        }
        if (version4) {
            drawn.remove(LONG_TOPICS);
            drawn.remove(RECORD_CRC);
        }
        if (drawn.contains(KEYLESS)) {
            drawn.remove(FULL_INDEX);
        }
        if (drawn.contains(FULL_INDEX)) {
            drawn.remove(TORN);
        }
        if (drawn.contains(SHORT_SEGMENT)) {
            drawn.remove(SPARE_SEGMENT);
        }
        return drawn;
    }
}
