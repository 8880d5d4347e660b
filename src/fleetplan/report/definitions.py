"""What each figure of a page means, in the words of the model."""

METRICS: tuple[tuple[str, str], ...] = (
    ("TTFT", "Time to first token: from the request's arrival to its first token; network, queueing and prefill."),
    ("TPOT", "Time per output token of one request after the first: (finish − first token) / (tokens − 1), for two tokens or more."),
    ("ITL", "Inter-token latency: the gaps between a request's tokens, all requests' gaps pooled."),
    ("E2E", "From arrival to the last token: TTFT + (tokens − 1) · TPOT."),
    ("p99 and other percentiles", "Nearest rank over the requests of the class that arrive after the warm-up. Rejected and timed-out requests count as misses, so a percentile may be unbounded."),
    ("A promise holds", "“p99 TTFT ≤ 1 s” holds when at least 99 % of the class's requests meet 1 s."),
    ("Requests that are sent again", "One request, however often its client sends it: it meets a promise if its last attempt was served and the time from its first attempt keeps the limit. Who is given up after the last retry is a miss."),
    ("Attainment, goodput", "The share of requests of classes with promises that meet all of theirs, and the rate of those requests."),
    ("Replicas N", "Copies of the model that serve. Spares come on top. N and N − 1 are compared without spares."),
    ("GPUs", "(N + spares) × GPUs per replica, rounded up to what can be bought."),
    ("Utilisation", "Offered rate over the rate that the same mix could be served at without end, by simulation at saturation."),
    ("Cost per 1M tokens", "USD per hour of the fleet / (3600 · tokens per second) · 10⁶ at the planned traffic."),
    ("Ridge", "The batch at which compute takes as long as reading weights and KV cache; beyond it larger batches stop being nearly free."),
    ("Memory wall", "The most sequences of mean length whose KV cache fits."),
    ("Unstable", "The queue still grows at the end of the run: no average is given."),
)  # fmt: skip
