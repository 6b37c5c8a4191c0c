package oracle;

import java.lang.reflect.Field;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.AllocateMappedFileService;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** The settings all programs open a store with: a broker's defaults, but nothing that ages or frees disk. */
final class Settings {
    /** A broker's default. */
    static final long SEGMENT_SIZE = 1L << 30;
    /** Milliseconds. */
    private static final int SEGMENT_PATIENCE = 120_000;

    static {
        // A put is refused when the next segment is not made within 5 s, which a disk that others are filling may take.
        try {
            Field wait = AllocateMappedFileService.class.getDeclaredField("waitTimeOut");
            wait.setAccessible(true);
            wait.setInt(null, SEGMENT_PATIENCE);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    private Settings() {
    }

    /**
     * Lets a start look back at so many segments: from 5.4.0 on a broker takes ten, and what lies before them is never
     * dispatched. Set as a broker sets what its broker.conf says: versions without that setting pass over it.
     */
    static void recoverSegments(MessageStoreConfig config, int segments) {
        Properties words = new Properties();
        words.setProperty("commitLogRecoverMaxNum", Integer.toString(segments));
        MixAll.properties2Object(words, config);
    }

    static MessageStoreConfig of(Path root, Args args, long segmentSize) {
        MessageStoreConfig config = of(root);
        config.setMappedFileSizeCommitLog(args.count("segment-size", Math.toIntExact(segmentSize)));
        config.setMappedFileSizeConsumeQueue(args.count("cq-file-size", 6_000_000));
        config.setMaxHashSlotNum(args.count("hash-slots", 5_000_000));
        config.setMaxIndexNum(args.count("index-items", 20_000_000));
        if (args.has("enable-lmq")) {
            config.setEnableLmq(true);
            config.setEnableMultiDispatch(true);
        }
        set(config, args.text("set", ""));
        return config;
    }

    /** {@code name=value,...} as broker.conf has them; a version that lacks a setting passes over it, as its broker does. */
    static void set(Object config, String words) {
        Properties properties = new Properties();
        for (String word : words.split(",")) {
            int equals = word.indexOf('=');
            if (equals > 0) {
                properties.setProperty(word.substring(0, equals), word.substring(equals + 1));
            }
        }
        MixAll.properties2Object(properties, config);
    }

    static MessageStoreConfig of(Path root) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.toString());
        config.setStorePathCommitLog(root.resolve("commitlog").toString());
        config.setFlushDiskType(FlushDiskType.ASYNC_FLUSH);
        // Port 0: any free one, so that several stores can run side by side.
        config.setHaListenPort(0);
        // A broker deletes segments that are three days old (by default at four o'clock) or when the disk is full.
        config.setFileReservedTime(Integer.MAX_VALUE);
        config.setCleanFileForciblyEnable(false);
        config.setCleanResourceInterval(Integer.MAX_VALUE);
        System.setProperty("rocketmq.broker.diskSpaceWarningLevelRatio", "0.99");
        return config;
    }
}
