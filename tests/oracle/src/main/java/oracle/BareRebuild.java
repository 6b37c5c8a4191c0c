package oracle;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** What the real store makes of a bare commitlog, without the races it has with itself where files are small. */
final class BareRebuild {
    private static final long PATIENCE = TimeUnit.SECONDS.toNanos(120);

    private BareRebuild() {
    }

    /** Rebuilds in {@code root}, which holds a commitlog alone. All the store's threads are of the caller's group. */
    static void run(Plan plan, Path root) throws Exception {
        MessageStoreConfig config = Settings.of(root);
        plan.configure(config);
        Settings.recoverSegments(config, Integer.MAX_VALUE);
        // A flush of queues that overlaps the last dispatch would leave an older time in the checkpoint: only the last one counts.
        config.setFlushIntervalConsumeQueue(Integer.MAX_VALUE);
        OracleStore store = ScenarioStore.make(config, null);
        IndexPatience patience = IndexPatience.of(store, root);
        if (!store.load()) {
            throw new Main.Failure("the store does not load");
        }
        store.start();
        while (store.dispatchBehindBytes() > 0) {
            if (System.nanoTime() - patience.lastNanos() > PATIENCE) {
                throw new Main.Failure("the store dispatches no further");
            }
            Thread.sleep(2);
        }
        Thread.currentThread().interrupt();
        store.shutdown();
        Thread.interrupted();
        if (Files.exists(root.resolve("abort"))) {
            throw new Main.Failure("the store did not shut down cleanly");
        }
    }
}
