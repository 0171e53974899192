-- The whole life of messages: POST, GET, DELETE. Arguments: queue, bytes.
-- A connection that is free deletes what has been fetched, or else fetches what has been posted, or
-- else posts: so the three run in step. A GET waits (long polling) for its message, which the mover
-- may still be delivering.
dofile(os.getenv("FSMQ_BENCH_LUA") .. "/common.lua")

function init(args)
  local body = string.rep("x", tonumber(args[2]))
  local at = "/" .. args[1] .. "/messages"
  local rest = " HTTP/1.1\r\nHost: localhost\r\n"
  post = "POST " .. at .. rest .. "Content-Length: " .. #body .. "\r\n\r\n" .. body
  get = "GET " .. at .. "?wait=1" .. rest .. "\r\n"
  delete_head = "DELETE " .. at .. "/"
  delete_tail = rest .. "\r\n"
  fetched = {}
  unfetched = 0
end

function request()
  local id = table.remove(fetched)
  if id then
    return delete_head .. id .. delete_tail
  end
  if unfetched > 0 then
    unfetched = unfetched - 1
    return get
  end
  return post
end

function response(status, headers, body)
  count(status)
  if status == 201 then
    unfetched = unfetched + 1
  elseif status == 200 then
    table.insert(fetched, headers["X-Message-Id"])
  elseif status == 204 then
    unfetched = unfetched + 1 -- the wait was over before its message came
  end
end
