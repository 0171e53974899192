-- What all scripts share: counts of answers by status, summed over wrk's threads at the end.
local threads = {}
statuses = {}
-- A thread ends behind so many answers, if that is said: tests judge no figure.
local most = tonumber(os.getenv("FSMQ_BENCH_MOST") or "")
local answers = 0

function setup(thread)
  table.insert(threads, thread)
end

local function one_more()
  answers = answers + 1
  if most and answers >= most then
    wrk.thread:stop()
  end
end

if most then
  response = one_more  -- of scripts that have none; the others call count
end

function count(status)
  statuses[status] = (statuses[status] or 0) + 1
  one_more()
end

function done(summary, latency, requests)
  local errors = summary.errors
  local parts = {}
  local sums = {}
  for _, thread in ipairs(threads) do
    for status, n in pairs(thread:get("statuses") or {}) do
      sums[status] = (sums[status] or 0) + n
    end
  end
  for status, n in pairs(sums) do
    table.insert(parts, string.format('"%d": %d', status, n))
  end
  io.write(string.format(
    '\nRESULT {"requests": %d, "seconds": %.6f, "p50_ms": %.4f, "p99_ms": %.4f, "max_ms": %.4f, ' ..
    '"bad_statuses": %d, "socket_errors": %d, "statuses": {%s}}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3,
    latency:percentile(99) / 1e3, latency.max / 1e3, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout, table.concat(parts, ", ")))
end
