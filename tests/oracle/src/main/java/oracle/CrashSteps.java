package oracle;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

/**
 * A program that a test leads by the hand: steps on stdin, one a line, words parted by tabs; one line on stdout answers
 * each, {@code ok} and a value or {@code error} and the reason. The test may so kill it between two steps, or have it halt.
 */
final class CrashSteps {
    /** One kind of step; {@code words} without its name. */
    interface Step {
        String take(List<String> words) throws Exception;
    }

    private CrashSteps() {
    }

    /** Ends with stdin, and after {@code seconds} whatever happens: a test that died leaves no JVM behind. */
    static void run(Map<String, Step> steps, int seconds) throws IOException {
        Thread limit = new Thread(() -> {
            try {
                Thread.sleep(seconds * 1000L);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            System.err.println("ended after " + seconds + " s");
            Runtime.getRuntime().halt(1);
        });
        limit.setDaemon(true);
        limit.start();
        // What RocketMQ itself prints must not stand between the answers.
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            List<String> words = List.of(line.split("\t", -1));
            answers.println(answer(steps, words));
            answers.flush();
        }
    }

    private static String answer(Map<String, Step> steps, List<String> words) {
        try {
            Step step = steps.get(words.get(0));
            if (step == null) {
                return "error no such step: " + words.get(0);
            }
            return "ok " + step.take(words.subList(1, words.size()));
        } catch (Throwable e) {
            e.printStackTrace();
            return "error " + String.valueOf(e).replace('\n', ' ');
        }
    }
}
