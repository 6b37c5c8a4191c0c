package oracle;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * What RocketMQ's filter answers. Each line of stdin is an expression, then a name and a value for each property, all
 * separated by U+001F. Prints 1 where a message with these properties is taken, 0 where not, - for no expression.
 */
public final class Select {
    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\u001f", -1);
            Map<String, Object> properties = new HashMap<>();
            for (int k = 1; k + 1 < words.length; k += 2) {
                properties.put(words[k], words[k + 1]);
            }
            out.println(answer(words[0], properties));
        }
        out.flush();
    }

    private static String answer(String text, Map<String, Object> properties) {
        Expression expression;
        try {
            expression = SelectorParser.parse(text);
        } catch (Throwable error) {
            return "-";
        }
        try {
            return Boolean.TRUE.equals(expression.evaluate(new Context(properties))) ? "1" : "0";
        } catch (Throwable error) {
            return "0";
        }
    }

    private static final class Context implements EvaluationContext {
        private final Map<String, Object> properties;

        Context(Map<String, Object> properties) {
            this.properties = properties;
        }

        @Override
        public Object get(String name) {
            return properties.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return properties;
        }
    }
}
