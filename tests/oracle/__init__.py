"""The real RocketMQ as the judge of builds."""
