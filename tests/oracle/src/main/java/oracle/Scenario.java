package oracle;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Random stores by seed, each with the real store's own rebuild of its bare commitlog: many in one JVM. */
final class Scenario {
    private static final String USAGE = "usage: Scenario --seed S --out DIR [--count N] [--threads N] [--stale]";

    private Scenario() {
    }

    public static void main(String[] argv) {
        Main.run(USAGE, () -> run(new Args(argv, Set.of("seed", "count", "out", "threads"), Set.of("stale"))));
    }

    private static void run(Args args) throws Exception {
        args.required("seed");
        long seed = args.seed("seed", 0);
        int count = args.count("count", 1);
        Path out = Path.of(args.required("out"));
        Folders.claim(out);
        long begin = System.nanoTime();
        AtomicInteger failed = new AtomicInteger();
        AtomicInteger group = new AtomicInteger();
        // A store's threads join the group of the thread that starts it: so each scenario knows its own.
        ExecutorService pool = Executors.newFixedThreadPool(args.count("threads", 4),
            task -> new Thread(new ThreadGroup("scenarios-" + group.incrementAndGet()), task));
        for (int i = 0; i < count; i++) {
            Plan plan = args.has("stale") ? StaleRun.plan(Plan.of(seed + i, Main.version())) : Plan.of(seed + i, Main.version());
            pool.execute(() -> one(plan, args.has("stale"), out.resolve(Long.toString(plan.seed())), failed));
        }
        pool.shutdown();
        if (!pool.awaitTermination(1, TimeUnit.DAYS)) {
            throw new Main.Failure("scenarios did not end");
        }
        System.out.printf(Locale.ROOT, "{\"scenarios\": %d, \"failed\": %d, \"seconds\": %.1f, \"version\": \"%s\"}%n",
            count, failed.get(), (System.nanoTime() - begin) / 1e9, Main.version());
    }

    /** One scenario. What goes wrong with it is written down, and the next one comes. */
    private static void one(Plan plan, boolean stale, Path root, AtomicInteger failed) {
        String failure = null;
        long[] ends = {-1, -1};
        try {
            Files.createDirectories(root);
            if (stale) {
                ends = StaleRun.run(plan, root);
            } else {
                ScenarioRun.run(plan, root);
            }
        } catch (Throwable e) {
            failure = e.toString();
            failed.incrementAndGet();
            System.err.println("seed " + plan.seed() + ": ");
            e.printStackTrace();
        }
        try {
            Files.writeString(root.resolve("settings.json"), plan.json(failure, ends));
        } catch (Exception e) {
            e.printStackTrace();
        }
    }
}
