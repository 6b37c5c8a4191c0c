"""What a job asks of whatever runs its functions: Spark, or the processes of one machine; these, without Java."""
