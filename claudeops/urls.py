"""Root URL configuration."""

from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import include, path

from sessions_app.access.login import CountingLoginView, InvitedView, OwnPasswordView
from sessions_app.access.permissions import for_any_account

admin.autodiscover()

urlpatterns = [
    path("login/", CountingLoginView.as_view(), name="login"),
    path("logout/", for_any_account(LogoutView.as_view()), name="logout"),
    path("password/", for_any_account(OwnPasswordView.as_view()), name="password"),
    path("invited/<uidb64>/<token>/", InvitedView.as_view(), name="invited"),
    path("admin/", admin.site.urls),
    path("api/v1/", include("escalation.api.urls")),
    path("mcp", include("escalation.api.mcp")),
    path("", include("escalation.web.urls")),
]
