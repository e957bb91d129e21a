CREATE VIEW report.fragmentation AS
WITH card AS (
    SELECT
        node,
        coalesce(model, 'unknown') AS model,
        minor,
        pods,
        CASE WHEN healthy THEN greatest(core - core_used, 0) ELSE 0 END AS core_left,
        CASE WHEN healthy THEN greatest(memory - memory_used, 0) ELSE 0 END AS memory_left,
        CASE WHEN healthy THEN greatest(ratio - ratio_used, 0) ELSE 0 END AS ratio_left
    FROM gpuledger_live.shared_device
    WHERE type = 'gpu'
),
waiting AS (
    -- A request of a pod that waits, as the extender counts it: so many GPUs, and of each so much.
    SELECT
        requested.number,
        coalesce(requested.whole, requested.core / requested.number, 0) AS core,
        coalesce(requested.memory / requested.number, 0) AS memory,
        coalesce(requested.whole, requested.ratio / requested.number, 0) AS ratio
    FROM (
        SELECT
            CASE
                WHEN amount.cards > 0 THEN amount.cards
                WHEN amount.spread > 0 THEN amount.spread
                WHEN coalesce(amount.percent, amount.ratio) > 100 THEN coalesce(amount.percent, amount.ratio) / 100
                ELSE 1
            END AS number,
            CASE
                WHEN amount.cards > 0 THEN 100
                WHEN amount.percent > 0 THEN least(amount.percent / greatest(coalesce(amount.spread, 1), 1), 100)
            END AS whole,
            amount.core,
            amount.memory,
            amount.ratio
        FROM gpuledger_live.shared_pod AS pod
        CROSS JOIN LATERAL (
            SELECT
                (pod.requests::jsonb ->> 'nvidia.com/gpu')::bigint AS cards,
                (pod.requests::jsonb ->> 'gpu')::bigint AS percent,
                (pod.requests::jsonb ->> 'gpu.shared')::bigint AS spread,
                (pod.requests::jsonb ->> 'gpu-core')::bigint AS core,
                (pod.requests::jsonb ->> 'gpu-memory')::bigint AS memory,
                (pod.requests::jsonb ->> 'gpu-memory-ratio')::bigint AS ratio
        ) AS amount
        WHERE pod.over_at IS NULL AND pod.state = 'waiting'
    ) AS requested
),
mix AS (
    SELECT core, memory, ratio, count(*) AS weight
    FROM (
        SELECT core, memory, ratio FROM waiting WHERE core > 0 OR memory > 0 OR ratio > 0
        UNION ALL
        -- What pods hold shows what is usually asked for; its memory follows from the ratio on other cards.
        SELECT held.core, 0, held.ratio
        FROM gpuledger_live.shared_allocation AS held
        WHERE held.type = 'gpu' AND held.valid_to IS NULL
    ) AS asked
    GROUP BY core, memory, ratio
),
usable AS (
    SELECT
        card.node,
        card.minor,
        coalesce(bool_or(fitting.fits), false) AS by_any,
        sum(mix.weight) FILTER (WHERE NOT fitting.fits) / nullif(sum(mix.weight), 0) AS refused
    FROM card
    LEFT JOIN mix ON true
    LEFT JOIN LATERAL (
        SELECT mix.core <= card.core_left AND mix.memory <= card.memory_left AND mix.ratio <= card.ratio_left AS fits
    ) AS fitting ON mix.weight IS NOT NULL
    GROUP BY card.node, card.minor
)
SELECT
    CASE WHEN grouping(card.node) = 0 THEN 'node' WHEN grouping(card.model) = 0 THEN 'model' ELSE 'all' END AS per,
    CASE WHEN grouping(card.model) = 0 THEN card.model END AS model,
    CASE WHEN grouping(card.node) = 0 THEN card.node END AS node,
    count(*) AS gpus,
    count(*) FILTER (WHERE card.pods > 0 AND card.ratio_left > 0 AND card.core_left > 0) AS partly_used,
    round(sum(card.ratio_left) / 100.0, 2) AS free_gpus,
    round(coalesce(sum(card.ratio_left) FILTER (WHERE card.pods > 0), 0) / 100.0, 2) AS free_on_used,
    max(card.ratio_left) AS largest_free,
    (SELECT count(*) FROM mix) AS requests,
    round(coalesce(sum(card.ratio_left) FILTER (WHERE NOT usable.by_any), 0) / 100.0, 2) AS unusable_gpus,
    round(coalesce(sum(card.ratio_left * usable.refused), 0) / 100.0, 2) AS fragmented_gpus,
    round(coalesce(sum(card.ratio_left * usable.refused), 0) / nullif(sum(card.ratio_left), 0), 4) AS fragmentation
FROM card
INNER JOIN usable ON usable.node = card.node AND usable.minor = card.minor
GROUP BY GROUPING SETS ((), (card.model), (card.model, card.node))
HAVING count(*) > 0
ORDER BY 1, 2, 3;

COMMENT ON VIEW report.fragmentation IS
    'How much of shared GPUs is free, and how much of that neither waiting nor usual requests can use. In all, per model, and per node.';
COMMENT ON COLUMN report.fragmentation.per IS 'What the row is about: all, model or node.';
COMMENT ON COLUMN report.fragmentation.model IS 'The model; null in the row about all.';
COMMENT ON COLUMN report.fragmentation.node IS 'The node; null in rows about several.';
COMMENT ON COLUMN report.fragmentation.gpus IS 'Number of GPUs that are shared.';
COMMENT ON COLUMN report.fragmentation.partly_used IS 'How many have computing power and memory left beside what pods hold.';
COMMENT ON COLUMN report.fragmentation.free_gpus IS 'How much is free, as a number of GPUs, by memory; unhealthy GPUs have nothing.';
COMMENT ON COLUMN report.fragmentation.free_on_used IS 'How much of that is on GPUs that pods hold parts of.';
COMMENT ON COLUMN report.fragmentation.largest_free IS 'The most that one GPU has left, in percent.';
COMMENT ON COLUMN report.fragmentation.requests IS
    'Number of different requests per GPU, of waiting pods and of pods that hold some; without any nothing is usable.';
COMMENT ON COLUMN report.fragmentation.unusable_gpus IS 'How much is free on GPUs on which none of these requests fits.';
COMMENT ON COLUMN report.fragmentation.fragmented_gpus IS
    'How much of the free part a request of this mix can not use on average, as fragmentation gradient descent measures it per GPU.';
COMMENT ON COLUMN report.fragmentation.fragmentation IS 'That as a part of what is free; null if nothing is.';
