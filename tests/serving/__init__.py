"""Built stores in the hands of the real RocketMQ: a broker that serves them, and stores that crash on them."""
