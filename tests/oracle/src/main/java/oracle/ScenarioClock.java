package oracle;

import java.util.SplittableRandom;
import org.apache.rocketmq.common.SystemClock;

/** Store time, moved by hand. */
final class ScenarioClock extends SystemClock {
    private static final long START = 1_700_000_000_000L;
    private static final long YEAR = 365L * 86_400_000;
    private static final long[] JUMPS = {-3_600_000, -999, -1, 999, 1_000, 1_001, 86_400_000, 40 * YEAR, 80 * YEAR, -YEAR};

    private final SplittableRandom random;
    private final boolean jumps;
    private volatile long now = START;

    ScenarioClock(SplittableRandom random, boolean jumps) {
        this.random = random;
        this.jumps = jumps;
    }

    void tick() {
        long next = now + random.nextInt(random.nextBoolean() ? 3 : 2_000);
        if (jumps && random.nextInt(20) == 0) {
            int kind = random.nextInt(JUMPS.length + 2);
            // Back to the start, into the first second of 1970, or by so much.
            next = kind == JUMPS.length ? START : kind > JUMPS.length ? random.nextInt(3_000) : next + JUMPS[kind];
        }
        now = Math.max(0, next);
    }

    void pass(int milliseconds) {
        now += milliseconds;
    }

    @Override
    public long now() {
        return now;
    }
}
