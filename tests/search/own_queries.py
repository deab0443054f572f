"""Tools of nine made-up servers, and sixty queries as a model or a person types them, each with the tools it needs."""

from __future__ import annotations

from typing import Final

from toolwire.search import IndexedTool

# SERVER: then NAME | DESCRIPTION | ARGUMENTS, one tool in a line.
_CATALOGUE: Final = """
code:
create_pull_request | Open a pull request from a branch. | repository title head base draft
merge_pull_request | Merge a pull request, by merge commit, squash or rebase. | repository number method
list_pull_requests | List the pull requests of a repository by state. | repository state author
get_pull_request_diff | Return the changes of a pull request as a unified diff. | repository number
create_issue | Open an issue in a repository. | repository title body labels
update_issue | Change the title, text, state or assignees of an issue. | repository number state
add_issue_comment | Add a comment to an issue or a pull request. | repository number body
search_code | Search for text in the files of all repositories. | query language
get_file_contents | Return a file or a directory of a repository at a commit. | repository path ref
create_branch | Create a branch from another one. | repository branch from
list_commits | List the commits of a branch. | repository branch since
rerun_workflow | Run a failed workflow of the continuous integration again. | repository run_id
get_job_logs | Return the logs of a job of a workflow run. | repository job_id
create_release | Publish a release with a tag and notes. | repository tag notes
chat:
sendMessage | Post a message to a channel or a thread. | channel text thread
listChannels | List the channels of the workspace. | archived limit
createChannel | Create a public or private channel. | name private
inviteToChannel | Add people to a channel. | channel users
searchMessages | Search for messages by text, author and date. | query from after
addReaction | React to a message with an emoji. | channel message emoji
uploadFile | Upload a file and share it in a channel. | channel path title
setStatus | Set the status text and emoji of the user. | text emoji until
getThread | Return all replies of a thread. | channel message
scheduleMessage | Send a message to a channel at a later time. | channel text time
crm:
search_customers | Look up customers by name, e-mail or company. | query limit
create_customer | Create a customer record. | name email company
merge_customers | Merge two customer records that are the same person. | keep remove
list_deals | List the deals of the pipeline by stage. | stage owner
update_deal_stage | Move a deal to another stage of the pipeline. | deal stage
log_activity | Record a call, a meeting or a note for a customer. | customer kind text
export_contacts | Export contacts as a CSV file. | filter fields
payments:
create_invoice | Create an invoice for a customer, with lines and taxes. | customer lines due
send_invoice | Send an invoice by e-mail. | invoice
refund_payment | Give money back for a payment, in full or in part. | payment amount reason
list_payments | List payments by customer, state and date. | customer status from to
cancel_subscription | Cancel a subscription at once or at the end of its period. | subscription when
create_coupon | Create a coupon with a percentage or an amount off. | code percent_off
get_balance | Return the balance of the account, available and pending. | currency
calendar:
create_event | Create an event, and invite people to it. | title start end attendees
find_free_time | Find times at which all people are free. | attendees duration between
list_events | List the events of a day or a range of days. | from to calendar
update_event | Move an event, or change its title, place or attendees. | event start
delete_event | Delete an event and tell its attendees. | event
respond_to_invitation | Accept or decline an invitation. | event answer
files:
read_file | Return the contents of a text file. | path head tail
write_file | Write text to a file, which is replaced if it exists. | path content
edit_file | Replace parts of a text file. | path edits
list_directory | List the files and folders of a directory. | path
move_file | Move or rename a file. | source destination
search_files | Find files whose name matches a pattern. | path pattern
get_file_info | Return size, times and permissions of a file. | path
create_directory | Make a new directory. | path
database:
run_query | Run a read-only SQL query, and return its rows. | sql limit
list_tables | List the tables of the database with their sizes. | schema
describe_table | Return columns, types, keys and indexes of a table. | table
explain_query | Show the plan by which the database runs a query. | sql analyze
apply_migration | Change the schema of the database with a migration. | name sql
create_backup | Take a snapshot of the whole database. | name
browser:
navigate | Open a web page by its address. | url
click | Click on an element of the page. | selector
fill_form | Type values into the fields of a form. | fields
take_screenshot | Take a picture of the page or of an element. | selector full_page
get_page_text | Return the text of the page, without markup. | selector
evaluate_script | Run JavaScript in the page, and return its value. | script
print_to_pdf | Save the page as a PDF file. | path landscape
ops:
list_alerts | List the alerts that fire now. | severity team
acknowledge_alert | Take over an alert, so that nobody else is paged. | alert
query_metrics | Query time series by an expression. | expression from to step
search_logs | Search the logs of services. | query service from to
restart_service | Restart all instances of a service. | service
scale_service | Change the number of instances of a service. | service replicas
rollback_deployment | Go back to the version that was deployed before. | service
create_incident | Declare an incident and page the team on duty. | title severity team
get_weather | Return the weather at a place, now and for seven days. | city days
translate_text | Translate a text into another language. | text target
convert_currency | Convert an amount between currencies at the rate of today. | amount from to
"""

#: Queries, each with the tools of which the first is the best.
QUERIES: Final[dict[str, tuple[str, ...]]] = {
    "merge PR": ("merge_pull_request",),
    "list open pull requests": ("list_pull_requests",),
    "open a PR": ("create_pull_request",),
    "show me the diff of a PR": ("get_pull_request_diff",),
    "file a bug report": ("create_issue",),
    "close an issue": ("update_issue",),
    "comment on an issue": ("add_issue_comment",),
    "where is this function used in our code": ("search_code",),
    "read a file from the repo": ("get_file_contents", "read_file"),
    "new branch": ("create_branch",),
    "commit history": ("list_commits",),
    "rerun failed CI": ("rerun_workflow",),
    "why did the job fail": ("get_job_logs",),
    "publish a new release": ("create_release",),
    "post to a slack channel": ("sendMessage",),
    "send a message later": ("scheduleMessage",),
    "which channels are there": ("listChannels",),
    "add someone to a channel": ("inviteToChannel",),
    "find what Anna wrote about the outage": ("searchMessages",),
    "emoji reaction": ("addReaction",),
    "share a document in a channel": ("uploadFile",),
    "replies of a thread": ("getThread",),
    "find a customer": ("search_customers",),
    "add a new client company": ("create_customer",),
    "duplicate customers": ("merge_customers",),
    "deals in the pipeline": ("list_deals",),
    "move deal to won": ("update_deal_stage",),
    "note a phone call with a customer": ("log_activity",),
    "download contacts as csv": ("export_contacts",),
    "bill a customer": ("create_invoice",),
    "email the invoice": ("send_invoice",),
    "refund an order": ("refund_payment",),
    "payments of last month": ("list_payments",),
    "stop a subscription": ("cancel_subscription",),
    "discount code": ("create_coupon",),
    "how much money do we have": ("get_balance",),
    "schedule a meeting": ("create_event",),
    "when are all of us free": ("find_free_time",),
    "what is on my calendar today": ("list_events",),
    "reschedule an event": ("update_event",),
    "cancel an appointment": ("delete_event",),
    "decline an invitation": ("respond_to_invitation",),
    "rename file": ("move_file",),
    "list files in a folder": ("list_directory",),
    "find files by name": ("search_files",),
    "mkdir": ("create_directory",),
    "run sql": ("run_query",),
    "which columns does a table have": ("describe_table",),
    "slow query": ("explain_query",),
    "backup the db": ("create_backup",),
    "open website": ("navigate",),
    "screenshot of a page": ("take_screenshot",),
    "execute javascript": ("evaluate_script",),
    "save page as pdf": ("print_to_pdf",),
    "current alerts": ("list_alerts",),
    "search the logs for errors": ("search_logs",),
    "roll back a deployment": ("rollback_deployment",),
    "add more instances": ("scale_service",),
    "will it rain tomorrow in Oslo": ("get_weather",),
    "dollars to euros": ("convert_currency",),
}  # fmt: skip


def own_tools() -> list[IndexedTool]:
    """Return the tools of the catalogue."""
    tools: list[IndexedTool] = []
    server = ""
    for line in _CATALOGUE.strip().splitlines():
        if "|" not in line:
            server = line.removesuffix(":")
            continue
        name, description, arguments = (part.strip() for part in line.split("|"))
        schema = {"type": "object", "properties": {each: {"type": "string"} for each in arguments.split()}}
        tools.append(IndexedTool(name=name, description=description, input_schema=schema, server=server))
    return tools


def recall(found: list[list[str]], needed: list[tuple[str, ...]]) -> float:
    """Return the mean share of the needed tools that were found."""
    shares = [len({*names} & {*needs}) / len(needs) for names, needs in zip(found, needed, strict=True)]
    return sum(shares) / len(shares)
