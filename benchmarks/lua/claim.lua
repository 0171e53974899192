-- Claims of messages, and their removal: GET, DELETE. Arguments: path, the header with their ids.
-- A connection that is free removes what has been claimed, or else claims.
dofile(os.getenv("FSMQ_BENCH_LUA") .. "/common.lua")

function init(args)
  local rest = " HTTP/1.1\r\nHost: localhost\r\n\r\n"
  get = "GET " .. args[1] .. "/messages" .. rest
  delete_head = "DELETE " .. args[1] .. "/messages/"
  delete_tail = rest
  name = args[2]
  claimed = {}
end

function request()
  local id = table.remove(claimed)
  if id then
    return delete_head .. id .. delete_tail
  end
  return get
end

function response(status, headers, body)
  count(status)
  if status == 200 then
    table.insert(claimed, headers[name])
  end
end
