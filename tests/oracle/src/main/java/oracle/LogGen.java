package oracle;

import java.nio.file.Path;
import java.util.Locale;
import java.util.Set;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Writes a commitlog with the real store: any size, quickly, the same bytes for the same seed. */
final class LogGen {
    private static final String USAGE =
        "usage: LogGen orders|small|large --out DIR --bytes N [--seed N] [--segment-size N]";

    private LogGen() {
    }

    public static void main(String[] argv) {
        Main.run(USAGE, () -> run(new Args(argv, Set.of("out", "bytes", "seed", "segment-size"), Set.of())));
    }

    private static void run(Args args) throws Exception {
        Messages messages = new Messages(Preset.of(args.word("preset")), args.seed("seed", 1));
        args.required("bytes");
        long bytes = args.size("bytes", 0);
        Path root = Path.of(args.required("out"));
        MessageStoreConfig config = Settings.of(root, args, Settings.SEGMENT_SIZE);
        config.setMessageIndexEnable(false);
        // In this mode the store dispatches only what has been confirmed, which here nobody does: so nothing costs
        // time but the log itself. 5.x then also leaves store time and queue offset to whoever puts the message.
        config.setDuplicationEnable(true);

        Folders.claim(root);
        OracleStore store = new OracleStore(config, messages);
        if (!store.load()) {
            throw new Main.Failure("an empty store does not load in " + root);
        }
        store.start();
        long begin = System.nanoTime();
        long records = 0;
        long end = 0;
        long largest = 0;
        // Never past the mark: a log of exactly one segment's size must not open a second segment, and the end of a
        // segment is left blank when a record and 8 bytes more do not fit.
        while (end + largest + 8 <= bytes || records == 0) {
            PutMessageResult result = store.putMessage(messages.next());
            AppendMessageResult appended = result.getAppendMessageResult();
            if (!result.isOk()) {
                throw new Main.Failure("record " + records + " was refused: " + result.getPutMessageStatus());
            }
            records++;
            end = appended.getWroteOffset() + appended.getWroteBytes();
            largest = Math.max(largest, appended.getWroteBytes());
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        store.shutdown();
        Folders.keepOnlyCommitlog(root);
        System.out.printf(Locale.ROOT, "{\"records\": %d, \"bytes\": %d, \"segments\": %d, \"seconds\": %.3f}%n",
            records, end, Folders.children(root.resolve("commitlog")).size(), seconds);
    }
}
